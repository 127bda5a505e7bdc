"""What holds for every object that the chart renders, read from the committed renderings."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from certs.cluster import Place
from certs.identity import service_names
from cli.main import COMMANDS
from sharing.api.crd import crd_manifests
from sharing.controller.election import LeaseSettings
from sharing.migparted import read_mig_configs
from sharing.names import MANAGED_LABEL
from sharing.node.health import HealthPolicy
from sharing.node.xidfile import read_table
from tests.chart import rendering
from webhook.guardpolicies import guard_policies
from webhook.registration import (
    SYSTEM_NAMESPACES,
    TEMPLATE_SYSTEMS,
    client_by_service,
    configuration,
)
from webhook.server import PATH
from webhook.settings import ServerSettings
from webhook.templatepaths import parse_template_paths

WORKLOADS = ("Deployment", "DaemonSet")
PRIVILEGED = ("hostPID", "hostNetwork", "hostIPC", "runtimeClassName")
every_set = pytest.mark.parametrize("values", rendering.SETS)


def workloads(values: str) -> list[dict[str, Any]]:
    return [each for each in rendering.objects(values) if each["kind"] in WORKLOADS]


def containers(values: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Pod specs with each of their containers."""
    for workload in workloads(values):
        spec = workload["spec"]["template"]["spec"]
        for container in spec["containers"]:
            yield spec, container


def container(values: str, kind: str, name: str) -> dict[str, Any]:
    (found,) = rendering.the(values, kind, name)["spec"]["template"]["spec"]["containers"]
    return dict(found)


# -- the webhook configuration


@pytest.mark.parametrize(
    ("values", "exempt", "hide"),
    [
        ("default", SYSTEM_NAMESPACES, False),
        ("hardened", (*SYSTEM_NAMESPACES, "calico-system", "rook-ceph"), True),
        ("cert-manager", SYSTEM_NAMESPACES, False),
    ],
)
def test_the_configuration_is_the_one_that_the_webhook_says(
    values: str, exempt: tuple[str, ...], hide: bool
) -> None:
    client = client_by_service(rendering.NAMESPACE, "gpu-sharing-webhook", PATH)
    said = configuration(client, exempt=exempt, hide_gpus=hide)

    rendered = rendering.the(values, "MutatingWebhookConfiguration", said["metadata"]["name"])

    assert rendered["webhooks"] == said["webhooks"]


@every_set
def test_no_bundle_is_rendered_that_an_upgrade_would_put_back(values: str) -> None:
    for each in rendering.the(values, "MutatingWebhookConfiguration", "gpu-sharing")["webhooks"]:
        assert "caBundle" not in each["clientConfig"]


@pytest.mark.parametrize(
    ("values", "exempt"),
    [
        ("default", SYSTEM_NAMESPACES),
        ("hardened", (*SYSTEM_NAMESPACES, "calico-system", "rook-ceph")),
    ],
)
def test_the_policies_are_those_that_guard_what_the_webhook_wrote(
    values: str, exempt: tuple[str, ...]
) -> None:
    said = guard_policies(exempt=exempt)
    kinds = {each["kind"] for each in said}
    rendered = {
        (each["kind"], each["metadata"]["name"]): each["spec"]
        for each in rendering.objects(values)
        if each["kind"] in kinds and each["metadata"]["name"] != "gpu-sharing-agent-own-node"
    }

    assert rendered == {(each["kind"], each["metadata"]["name"]): each["spec"] for each in said}


def test_to_let_pods_pass_unreviewed_is_a_choice() -> None:
    rendered = rendering.the("bare", "MutatingWebhookConfiguration", "gpu-sharing")

    assert {each["failurePolicy"] for each in rendered["webhooks"]} == {"Ignore"}


def test_templates_of_others_are_looked_at_without_making_anything_wait() -> None:
    webhooks = rendering.the("extended", "MutatingWebhookConfiguration", "gpu-sharing")["webhooks"]
    (entry,) = (each for each in webhooks if each["name"] == "templates.gpu.sharing")
    sent = {(group, each) for rule in entry["rules"] for group in rule["apiGroups"]
            for each in rule["resources"]}  # fmt: skip

    assert entry["failurePolicy"] == "Ignore"
    assert [each["name"] for each in entry["matchConditions"]] == ["not-a-kubelet"]
    assert {
        (group, resource)
        for system in TEMPLATE_SYSTEMS.values()
        for group, resources in system.items()
        for resource in resources
    } < sent, "the chart knows fewer projects than the webhook"
    assert ("batch.volcano.sh", "jobs") in sent
    assert {resource.rstrip("s") for _, resource in sent} <= {
        kind.partition(".")[0].lower() for kind in template_paths()
    }, "a kind is sent of which nobody knows where its templates are"


def file_of(name: str, key: str) -> str:
    """What a program of the extended set reads at its start."""
    text: str = rendering.the("extended", "ConfigMap", name)["data"][key]
    return text


def template_paths() -> Mapping[str, tuple[tuple[str, ...], ...]]:
    return parse_template_paths(yaml.safe_load(file_of("gpu-sharing-webhook", "paths.yaml")))


def test_the_programs_understand_the_files_that_the_values_make(tmp_path: Path) -> None:
    policy = tmp_path / "health.toml"
    policy.write_text(file_of("gpu-sharing-agent", "health.toml"))
    configs = yaml.safe_load(file_of("gpu-sharing-agent", "mig-configs.yaml"))

    assert HealthPolicy.of(read_table(policy)).quiet_s == 120.0
    assert "all-1g.10gb" in read_mig_configs(configs, "mig-configs.yaml").configs
    assert template_paths()["Job.batch.volcano.sh"] == (("spec", "tasks", "*", "template"),)


@pytest.mark.parametrize("name", ["gpu-sharing-agent", "gpu-sharing-webhook"])
def test_the_files_are_mounted_where_the_arguments_say(name: str) -> None:
    kind = "DaemonSet" if name == "gpu-sharing-agent" else "Deployment"
    pod = rendering.the("extended", kind, name)["spec"]["template"]
    each = container("extended", kind, name)
    (volume,) = (v["name"] for v in pod["spec"]["volumes"] if "configMap" in v)
    (folder,) = (m["mountPath"] for m in each["volumeMounts"] if m["name"] == volume)
    named = {a.partition("=")[2] for a in each["args"] if f"={folder}/" in a}

    data = rendering.the("extended", "ConfigMap", name)["data"]
    assert named == {f"{folder}/{key}" for key in data}
    assert pod["metadata"]["annotations"].keys() == {"checksum/files"}, "a change replaces pods"


# -- names that programs look for


def test_names_are_those_that_the_programs_look_for() -> None:
    place, lease = Place(), LeaseSettings()
    role = rendering.the("default", "Role", "gpu-sharing-certs")
    election = rendering.the("default", "Role", "gpu-sharing-controller")
    (configuration_name,) = place.configurations

    assert place.namespace == lease.namespace == rendering.NAMESPACE
    assert [place.secret] in [rule.get("resourceNames") for rule in role["rules"]]
    assert [lease.name] in [rule.get("resourceNames") for rule in election["rules"]]
    assert rendering.the("default", "MutatingWebhookConfiguration", configuration_name)


def test_certificates_carry_the_names_of_the_service() -> None:
    certificate = rendering.the("cert-manager", "Certificate", "gpu-sharing-webhook")
    service = rendering.the("cert-manager", "Service", "gpu-sharing-webhook")["metadata"]

    expected = service_names(service["name"], service["namespace"])
    assert certificate["spec"]["dnsNames"] == list(expected)


def test_the_crds_are_those_of_the_models() -> None:
    rendered = [
        {key: each[key] for key in ("apiVersion", "kind", "spec")}
        for each in rendering.objects("default")
        if each["kind"] == "CustomResourceDefinition"
    ]

    said = [{key: each[key] for key in ("apiVersion", "kind", "spec")} for each in crd_manifests()]
    assert sorted(rendered, key=str) == sorted(said, key=str)


def test_crds_outlive_an_uninstallation() -> None:
    for crd in rendering.objects("default"):
        if crd["kind"] == "CustomResourceDefinition":
            assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


# -- arguments


def options_of(command: str) -> set[str]:
    found = getattr(importlib.import_module(f"cli.{command}"), command)
    assert isinstance(found, click.Command)
    return {opt for param in found.params for opt in (*param.opts, *param.secondary_opts)}


def unknown_arguments(values: str) -> list[str]:
    """Arguments of a value set that no program takes."""
    found = []
    for _, each in containers(values):
        command, *arguments = each["args"]
        assert command in COMMANDS
        found += [a for a in arguments if a.partition("=")[0] not in options_of(command)]
    return found


OWN_CERTIFICATE = ("--certs-secret=", "--service=")
"""Of a webhook that keeps its own certificate."""


@every_set
def test_programs_are_called_with_options_that_they_take(values: str) -> None:
    assert [a for a in unknown_arguments(values) if not a.startswith(OWN_CERTIFICATE)] == []


def test_a_webhook_that_keeps_its_own_certificate_takes_the_options_for_it() -> None:
    assert unknown_arguments("default") == []


@every_set
def test_what_the_environment_brings_is_an_option_of_the_program(values: str) -> None:
    for _, each in containers(values):
        found = getattr(importlib.import_module(f"cli.{each['args'][0]}"), each["args"][0])
        taken = {param.envvar for param in found.params if param.envvar}
        given = {one["name"] for one in each.get("env", ()) if "valueFrom" in one}

        assert given <= taken


# -- ends and probes


def test_a_drain_fits_into_the_grace_period() -> None:
    deployment = rendering.the("default", "Deployment", "gpu-sharing-webhook")
    spec = deployment["spec"]["template"]["spec"]
    args = dict(a.lstrip("-").split("=", 1) for a in spec["containers"][0]["args"][1:])
    settings = ServerSettings()

    assert float(args["drain-delay"]) == settings.drain_delay_s
    assert float(args["drain-timeout"]) == settings.drain_timeout_s
    slack_s = spec["terminationGracePeriodSeconds"] - (
        settings.drain_delay_s + settings.drain_timeout_s
    )
    assert slack_s >= settings.body_timeout_s, "a review that came in last is answered"


def test_an_unready_replica_is_noticed_before_its_port_closes() -> None:
    probe = container("default", "Deployment", "gpu-sharing-webhook")["readinessProbe"]

    assert probe["periodSeconds"] * probe["failureThreshold"] <= ServerSettings().drain_delay_s


@every_set
def test_probes_ask_for_pages_that_the_health_port_has(values: str) -> None:
    for _, each in containers(values):
        ports = {one["name"]: one["containerPort"] for one in each["ports"]}
        command, *arguments = each["args"]
        option = "--health-port" if command == "webhook" else "--metrics-port"

        assert each["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "health"}
        assert each["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
        assert f"{option}={ports['health']}" in arguments


def test_ports_are_those_that_the_webhook_has_by_itself() -> None:
    found = container("default", "Deployment", "gpu-sharing-webhook")
    ports = {each["name"]: each["containerPort"] for each in found["ports"]}

    assert ports == {"reviews": ServerSettings().port, "health": ServerSettings().health_port}


# -- rights on the node


@every_set
def test_containers_have_no_right_that_nobody_explained(values: str) -> None:
    for spec, each in containers(values):
        context = each["securityContext"]
        added = context["capabilities"].get("add", [])
        is_nvml = "hostPID" in spec

        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"]["drop"] == ["ALL"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "privileged" not in context
        assert spec["enableServiceLinks"] is False
        assert added == (["SYS_ADMIN"] if is_nvml else [])
        assert context["allowPrivilegeEscalation"] is is_nvml


@every_set
def test_webhook_and_controller_are_nobody_on_the_node(values: str) -> None:
    for workload in workloads(values):
        spec = workload["spec"]["template"]["spec"]
        if workload["kind"] == "Deployment":
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert [v for v in spec.get("volumes", ()) if "hostPath" in v] == []


def test_simulated_gpus_need_nothing_privileged() -> None:
    spec = rendering.the("simulated", "DaemonSet", "gpu-sharing-agent")["spec"]["template"]["spec"]
    (each,) = spec["containers"]

    assert [key for key in PRIVILEGED if key in spec] == []
    assert "add" not in each["securityContext"]["capabilities"]
    assert "appArmorProfile" not in each["securityContext"]
    assert not [one for one in each["env"] if one["name"].startswith("NVIDIA")]


@every_set
def test_each_host_path_and_right_of_the_agent_has_its_reason_above_it(values: str) -> None:
    folder = rendering.CHART / "templates" / "agent"
    text = "".join(
        (folder / name).read_text("utf-8") for name in ("daemonset.yaml", "_volumes.tpl")
    )
    volumes = rendering.the(values, "DaemonSet", "gpu-sharing-agent")["spec"]["template"]["spec"][
        "volumes"
    ]
    own = {one["name"] for one in rendering.chosen(values)["agent"]["extraVolumes"]}

    for volume in (each for each in volumes if each["name"] not in own):
        assert re.search(rf"^ *# .+\n *- name: {volume['name']}\n", text, re.MULTILINE), volume
    assert "# SYS_ADMIN:" in text
    assert re.search(r"^ +# .+\n( +# .+\n)* +hostPID: true$", text, re.MULTILINE)


def test_the_agent_runs_on_managed_nodes_only() -> None:
    spec = rendering.the("default", "DaemonSet", "gpu-sharing-agent")["spec"]["template"]["spec"]

    assert spec["nodeSelector"][MANAGED_LABEL] == "true"


def test_roles_for_people_read_only_and_are_bound_to_nobody() -> None:
    roles = [
        each
        for each in rendering.objects("default")
        if each["metadata"]["labels"].get("app.kubernetes.io/component") == "people"
    ]
    bound = {each["roleRef"]["name"] for each in rendering.objects("default") if "roleRef" in each}

    assert {each["metadata"]["name"] for each in roles} == {"gpu-sharing-view", "gpu-sharing-top"}
    for role in roles:
        verbs = {verb for rule in role["rules"] for verb in rule["verbs"]}
        assert verbs <= {"get", "list", "watch"}
        assert role["metadata"]["name"] not in bound


# -- availability and form


def test_budgets_keep_all_but_one_replica() -> None:
    for name in ("gpu-sharing-webhook", "gpu-sharing-controller"):
        spec = rendering.the("default", "PodDisruptionBudget", name)["spec"]

        assert spec["maxUnavailable"] == 1
        assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_one_replica_has_no_budget_that_would_block_a_drain() -> None:
    assert "PodDisruptionBudget" not in {each["kind"] for each in rendering.objects("simulated")}


@every_set
def test_selectors_select_their_own_pods_alone(values: str) -> None:
    """NVIDIA/k8s-device-plugin#982: two DaemonSets of one selector fought for each other's pods."""
    selectors = [each["spec"]["selector"]["matchLabels"] for each in workloads(values)]
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in workloads(values)]

    for at, selector in enumerate(selectors):
        assert [selector.items() <= each.items() for each in labels] == [
            at == other for other in range(len(labels))
        ]


@every_set
def test_services_and_budgets_select_the_pods_of_one_program(values: str) -> None:
    """As k8s-device-plugin#982: what selects two programs' pods sends callers to the wrong one."""
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in workloads(values)]
    found = {"Service": "selector", "PodDisruptionBudget": "selector"}
    for each in rendering.objects(values):
        if each["kind"] in found:
            selector = each["spec"]["selector"]
            wanted = selector.get("matchLabels", selector)
            assert sum(wanted.items() <= one.items() for one in labels) == 1, each["metadata"]


@every_set
def test_containers_ask_for_memory_and_have_no_cpu_limit(values: str) -> None:
    for _, each in containers(values):
        assert each["resources"]["requests"].keys() == {"cpu", "memory"}
        assert each["resources"]["limits"].keys() == {"memory"}


@every_set
def test_objects_have_unique_names_and_our_namespace(values: str) -> None:
    names = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in rendering.objects(values)
    ]

    assert len(names) == len(set(names))
    assert {namespace for _, namespace, _ in names} <= {None, rendering.NAMESPACE}


def test_every_object_has_a_file_and_a_file_is_short() -> None:
    for path in (rendering.CHART / "templates").rglob("*.yaml"):
        lines = path.read_text("utf-8").splitlines()

        assert len(lines) <= 120, path
