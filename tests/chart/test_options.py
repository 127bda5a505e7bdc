"""Options of the programs: each can be set by the chart, or is left out for a reason.

What can be set is seen in the arguments and variables of some value set.
"""

from __future__ import annotations

import importlib
import json
from typing import Any, Final

import click
import pytest

from tests.chart import rendering
from tests.chart.tool import HELM

PROGRAMS: Final = ("agent", "controller", "webhook")
OWN_ACCOUNT: Final = "a pod is on its cluster already, under an account of its own"
UNSET: Final = {
    ("agent", "--kubeconfig"): OWN_ACCOUNT,
    ("agent", "--layout"): "layouts are GPULayouts in a cluster, not files of a node",
    ("agent", "--mig-config"): "chooses from the file of --layout",
    ("controller", "--kubeconfig"): OWN_ACCOUNT,
    ("controller", "--no-lease"): "two controllers live at once during every rolling update",
    ("webhook", "--static"): "reads manifests instead of the cluster",
    ("webhook", "--kubeconfig"): OWN_ACCOUNT,
    ("webhook", "--context"): "chooses from a kubeconfig",
    ("webhook", "--host"): "the kubelet and API servers call the pod's address",
    ("webhook", "--health-host"): "the kubelet calls the pod's address",
}
"""Options that no value sets, each with why."""
SEEN_BY_HELM: Final = {
    ("agent", "--simulate-files"): (
        "agent.driver=simulated",
        "agent.simulated.boards=1xL4-24GB",
        "agent.simulated.deviceFiles=true",
    ),
    ("agent", "--trust-pod-environment"): (
        "agent.deviceListStrategy=envvar",
        "agent.trustPodEnvironment=true",
    ),
}
"""Options that no value set has, with the values that bring them."""


def command(program: str) -> click.Command:
    found = getattr(importlib.import_module(f"cli.{program}"), program)
    assert isinstance(found, click.Command)
    return found


def options(program: str) -> dict[str, click.Option]:
    """The options that people see, by their long names."""
    return {
        param.opts[0]: param
        for param in command(program).params
        if isinstance(param, click.Option) and not param.hidden
    }


def container(values: str, program: str) -> dict[str, Any]:
    kind = "DaemonSet" if program == "agent" else "Deployment"
    found = rendering.the(values, kind, f"gpu-sharing-{program}")["spec"]["template"]["spec"]
    (each,) = found["containers"]
    return dict(each)


def seen(program: str) -> set[str]:
    """The options that some value set brings, as an argument or as a variable."""
    found = set()
    for values in rendering.SETS:
        each = container(values, program)
        given = {one["name"] for one in each.get("env", ())}
        found |= {argument.partition("=")[0] for argument in each["args"][1:]}
        found |= {name for name, one in options(program).items() if one.envvar in given}
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_option_is_set_by_the_chart_or_left_out_for_a_reason(program: str) -> None:
    unset = {name for owner, name in UNSET if owner == program}
    by_helm = {name for owner, name in SEEN_BY_HELM if owner == program}

    assert seen(program) | by_helm | unset == options(program).keys()
    assert not unset & (seen(program) | by_helm), "what is set needs no reason"


@pytest.mark.usefixtures("with_helm")
@pytest.mark.parametrize(("program", "option"), sorted(SEEN_BY_HELM))
def test_an_option_of_no_value_set_comes_with_its_values(program: str, option: str) -> None:
    words = [word for one in SEEN_BY_HELM[program, option] for word in ("--set", one)]
    done = HELM.run("template", *rendering.arguments("default"), *words)

    assert done.returncode == 0, done.stderr
    assert f"\n            - {option}\n" in done.stdout


@pytest.mark.parametrize(
    ("program", "option", "key"),
    [
        ("agent", "--device-list-strategy", "deviceListStrategy"),
        ("agent", "--share-placement", "sharePlacement"),
        ("agent", "--mps-protocol", "mpsProtocol"),
    ],
)
def test_a_choice_is_among_what_the_program_takes(program: str, option: str, key: str) -> None:
    schema = json.loads((rendering.CHART / "values.schema.json").read_text("utf-8"))
    offered = schema["properties"][program]["properties"][key]["enum"]
    found = options(program)[option]
    assert isinstance(found.type, click.Choice)

    assert [str(each) for each in offered] == list(found.type.choices)
    assert str(rendering.values()[program][key]) == found.default


def test_the_toolkits_configuration_is_looked_for_where_the_program_does() -> None:
    assert (
        rendering.values()["agent"]["toolkitConfig"] == options("agent")["--toolkit-config"].default
    )


def test_all_programs_hear_that_errors_shall_say_more() -> None:
    from cli.main import cli

    (debug,) = (param for param in cli.params if "--debug" in param.opts)
    for program in PROGRAMS:
        env = {one["name"]: one.get("value") for one in container("extended", program)["env"]}

        assert env[str(debug.envvar)] == "true"
        assert debug.type.convert(env[str(debug.envvar)], debug, None) is True


@pytest.mark.parametrize(
    ("values", "volume", "option"),
    [
        ("extended", "toolkit-config", "--toolkit-config"),
        ("bare", "driver-spec", "--driver-cdi-spec"),
    ],
)
def test_a_file_of_the_node_is_mounted_where_the_argument_says(
    values: str, volume: str, option: str
) -> None:
    each = container(values, "agent")
    spec = rendering.the(values, "DaemonSet", "gpu-sharing-agent")["spec"]["template"]["spec"]
    (path,) = (a.partition("=")[2] for a in each["args"] if a.startswith(f"{option}="))
    (mount,) = (one for one in each["volumeMounts"] if one["name"] == volume)
    (source,) = (one for one in spec["volumes"] if one["name"] == volume)

    assert mount == {"name": volume, "mountPath": path, "readOnly": True}
    assert source["hostPath"] == {"path": path, "type": "File"}


def test_the_webhook_reads_whose_certificates_callers_show() -> None:
    from certs.bundle import Bundle

    text = rendering.the("extended", "ConfigMap", "gpu-sharing-webhook")["data"]["callers.crt"]

    assert len(Bundle.parse(text.encode(), subject="callers")) == 1
