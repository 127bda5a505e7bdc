"""Values: each explained, each in the schema, each used; what is wrong is refused with advice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.chart import rendering
from tests.chart.explained import PAGE, WHOLE, explained, page
from tests.chart.tool import HELM

SCHEMA: dict[str, Any] = json.loads((rendering.CHART / "values.schema.json").read_text("utf-8"))
TEXT = (rendering.CHART / "values.yaml").read_text("utf-8")


def resolve(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" in schema:
        found: Mapping[str, Any] = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
        return found
    return schema


def closed(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every object of the schema that lists its keys, by its path in the values."""
    schema = resolve(schema)
    if "properties" in schema:
        yield path, schema
        for name, part in schema["properties"].items():
            yield from closed(part, f"{path}.{name}".lstrip("."))


def at(values: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        values = values[name]
    return values


def test_the_schema_has_exactly_the_keys_of_the_values() -> None:
    for path, schema in closed(SCHEMA):
        if path.endswith(WHOLE):
            continue
        found = at(rendering.values(), path)

        assert schema["additionalProperties"] is False, path
        assert set(schema["properties"]) - {"global"} == set(found), path


def test_every_key_that_is_set_has_a_sentence_above_it() -> None:
    for value in explained():
        assert re.match(r"^[A-Za-z].+[^ ,]$", value.sentence), value.key


def test_every_key_of_the_schema_is_explained() -> None:
    keys = {value.key for value in explained()}
    leaves = {
        f"{path}.{name}".lstrip(".")
        for path, schema in closed(SCHEMA)
        for name, part in schema["properties"].items()
        if not path.endswith(WHOLE)
        and name != "global"
        and ("properties" not in resolve(part) or name in WHOLE)
    }

    assert leaves <= keys


def test_the_charts_page_lists_the_values(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")

    assert PAGE.read_text("utf-8") == page(PAGE.read_text("utf-8")), "make golden writes it"


def test_values_stay_readable() -> None:
    assert len(TEXT.splitlines()) <= 300


def test_every_value_is_used_by_a_template() -> None:
    texts = "\n".join(
        path.read_text("utf-8")
        for path in (rendering.CHART / "templates").rglob("*")
        if path.is_file()
    )
    used = set(re.findall(r"\.([A-Za-z]+)\b", texts)) | {"global"}
    for path, schema in closed(SCHEMA):
        assert path.endswith(WHOLE) or set(schema["properties"]) <= used, path


def refusal(*sets: str) -> str:
    words = [word for each in sets for word in ("--set", each)]
    done = HELM.run("template", *rendering.arguments("default"), *words)
    assert done.returncode != 0, "nothing was refused"
    return " ".join(done.stderr.split())


@pytest.mark.usefixtures("with_helm")
@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["webook.replicas=2"], "additional properties 'webook' not allowed"),
        (["webhook.replica=2"], "additional properties 'replica' not allowed"),
        (["agent.simulated.board=1xL4-24GB"], "additional properties 'board' not allowed"),
        (["certs.provider=cert-manager"], "'/certs/provider'"),
        (["agent.driver=fake"], "'/agent/driver'"),
        (["webhook.replicas=0"], "minimum: got 0, want 1"),
        (["webhook.ports.reviews=443"], "minimum: got 443, want 1,024"),
        (["agent.kubeletDir=var/lib"], "'/agent/kubeletDir'"),
        (["image.digest=sha256:1"], "'/image/digest'"),
        (["agent.simulated.boards=H100", "agent.driver=simulated"], "'/agent/simulated/boards'"),
        (["webhook.workers=0"], "minimum: got 0, want 1"),
        (["webhook.templates.known={kubeflw}"], "'/webhook/templates/known/0'"),
        (
            ["webhook.templates.others[0].kind=Job", "webhook.templates.others[0].group=x.io"],
            "missing properties 'resource', 'paths'",
        ),
        (["agent.healthpolicy=x"], "additional properties 'healthpolicy' not allowed"),
        (["agent.deviceListStrategy=cdi"], "'/agent/deviceListStrategy'"),
        (["agent.sharePlacement=binpack"], "'/agent/sharePlacement'"),
        (["agent.mpsProtocol=1"], "'/agent/mpsProtocol'"),
        (["agent.driverCdiSpec=nvidia.yaml"], "'/agent/driverCdiSpec'"),
        (["agent.devRoot=run/nvidia"], "'/agent/devRoot'"),
        (["webhook.callers.ca=x"], "additional properties 'ca' not allowed"),
        (["agent.extraVolumeMounts[0].name=x"], "missing property 'mountPath'"),
    ],
)
def test_the_schema_refuses(sets: list[str], said: str) -> None:
    assert said in refusal(*sets)


@pytest.mark.usefixtures("with_helm")
@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (
            [
                "webhook.podDisruptionBudget.minAvailable=1",
                "webhook.podDisruptionBudget.maxUnavailable=1",
            ],
            "has both minAvailable and maxUnavailable, and Kubernetes takes one; leave one",
        ),
        (
            ["webhook.podDisruptionBudget.minAvailable=2"],
            "is 2 of 2 replicas, so no node that runs one could ever be drained; set it to 1",
        ),
        (
            ["controller.podDisruptionBudget.maxUnavailable=0"],
            "controller.podDisruptionBudget.maxUnavailable is 0",
        ),
        (["webhook.ports.health=8443"], "give probes a port of their own, for example 8080"),
        (["agent.driver=simulated"], "for example: --set agent.simulated.boards=2xH100-80GB"),
        (["agent.simulated.boards=1xL4-24GB"], "say: --set agent.driver=simulated"),
        (["agent.healthPolicy=health.toml"], "say: --set-file agent.healthPolicy=health.toml"),
        (["agent.migConfigs=config.yaml"], "say: --set-file agent.migConfigs=config.yaml"),
        (
            ["agent.deviceListStrategy=envvar"],
            "the webhook sees every pod of these nodes, say: --set agent.trustPodEnvironment=true",
        ),
        (["agent.trustPodEnvironment=true"], "cdi-cri cannot be got round by pods and trusts none"),
        (
            ["agent.deviceListStrategy=volume-mounts", "agent.driverCdiSpec=/etc/cdi/nvidia.yaml"],
            "is volume-mounts, by which its hooks reach no container; use cdi-cri",
        ),
        (
            [
                "agent.driver=simulated",
                "agent.simulated.boards=1xL4-24GB",
                "agent.driverCdiSpec=/etc/cdi/nvidia.yaml",
            ],
            "agent.driver is simulated, which has no driver to describe",
        ),
        (["agent.simulated.deviceFiles=true"], "whose GPUs have files of their own"),
        (["webhook.callers.authorities=ca.crt"], "--set-file webhook.callers.authorities=ca.crt"),
        (["webhook.callers.name=kube-apiserver"], "a name is worth what vouches for it"),
        (
            [r"commonLabels.app\.kubernetes\.io/name=mine"],
            "sets app.kubernetes.io/name, which the chart sets itself",
        ),
        (["certs.provider=files"], "name the Secret (type kubernetes.io/tls)"),
        (["certs.files.secretName=mine"], "say: --set certs.provider=files, or leave it out"),
        (["certs.certManager.issuerRef.name=x"], "say: --set certs.provider=certManager"),
    ],
)
def test_what_does_not_go_together_is_refused_with_advice(sets: list[str], said: str) -> None:
    assert said in refusal(*sets)


@pytest.mark.usefixtures("with_helm")
def test_a_namespace_that_others_live_in_is_refused() -> None:
    words = list(rendering.arguments("default"))
    words[words.index("--namespace") + 1] = "kube-system"
    done = HELM.run("template", *words)

    assert "say: --namespace gpu-sharing --create-namespace" in done.stderr


@pytest.mark.usefixtures("with_helm")
def test_another_namespace_goes_everywhere() -> None:
    words = list(rendering.arguments("hardened"))
    words[words.index("--namespace") + 1] = "elsewhere"
    done = HELM.run("template", *words)

    assert done.returncode == 0, done.stderr
    assert "namespace: gpu-sharing\n" not in done.stdout
    assert (
        "gpu-sharing-webhook.elsewhere.svc"
        in HELM.run("template", *words, "--set", "certs.provider=certManager").stdout
    )
    assert '"system:serviceaccount:elsewhere:gpu-sharing-agent"' in done.stdout
    assert "- elsewhere\n" in done.stdout


@pytest.mark.usefixtures("with_helm")
@pytest.mark.parametrize("values", rendering.SETS)
def test_helm_lint_has_nothing_to_say(values: str) -> None:
    _, chart, *rest = rendering.arguments(values)
    done = HELM.run("lint", chart, "--strict", *rest)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout
    assert "[ERROR]" not in done.stdout
