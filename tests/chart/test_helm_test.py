"""``helm test``: one pod that asks what an API server would ask, for each way to certificates."""

from __future__ import annotations

from typing import Any

import click
import pytest
import yaml

from cli.certs import verify
from tests.chart import rendering
from tests.chart.tool import HELM

pytestmark = pytest.mark.usefixtures("with_helm")
HOST = "gpu-sharing-webhook.gpu-sharing.svc"


def pod_of(values: str, *words: str) -> dict[str, Any]:
    only = ("--show-only", "templates/tests/verify.yaml")
    done = HELM.run("template", *rendering.arguments(values), *only, *words)
    assert done.returncode == 0, done.stderr
    (pod,) = [each for each in yaml.safe_load_all(done.stdout) if each]
    return dict(pod)


def asked(values: str) -> dict[str, Any]:
    """What the pod's program is told, as the program understands it."""
    (container,) = pod_of(values)["spec"]["containers"]
    assert container["args"][:2] == ["certs", "verify"]
    given = verify.make_context("verify", container["args"][2:], resilient_parsing=False)
    sources = {name: given.get_parameter_source(name) for name in given.params}
    line = click.core.ParameterSource.COMMANDLINE
    return {name: given.params[name] for name, source in sources.items() if source is line}


def test_a_webhook_with_its_own_certificate_is_judged_by_what_api_servers_trust() -> None:
    assert asked("default") == {
        "namespace": "gpu-sharing",
        "secret": "gpu-sharing-webhook-certs",
        "configurations": ("gpu-sharing",),
        "connect": f"{HOST}:443",
    }
    pod = pod_of("default")
    annotations = pod["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == "test"
    assert "hook-succeeded" in annotations["helm.sh/hook-delete-policy"], "an uninstall leaves it"
    assert pod["spec"]["serviceAccountName"] == "gpu-sharing-webhook"
    assert pod["spec"]["automountServiceAccountToken"] is True


@pytest.mark.parametrize(
    ("values", "more"),
    [
        ("cert-manager", {"ca": "/etc/gpu-sharing/tls/ca.crt", "connect": f"{HOST}:443"}),
        ("files", {}),
    ],
)
def test_a_certificate_of_somebody_else_is_judged_by_its_secret(
    values: str, more: dict[str, Any]
) -> None:
    folder = "/etc/gpu-sharing/tls"
    pair = {"cert": f"{folder}/tls.crt", "key": f"{folder}/tls.key", "names": (HOST,)}
    spec = pod_of(values)["spec"]
    webhook = rendering.the(values, "Deployment", "gpu-sharing-webhook")["spec"]["template"]["spec"]

    assert asked(values) == pair | more
    assert spec["volumes"] == webhook["volumes"]
    assert spec["containers"][0]["volumeMounts"][0]["mountPath"] == folder
    assert spec["automountServiceAccountToken"] is False


def test_no_handshake_is_tried_where_callers_have_to_show_a_certificate() -> None:
    assert "connect" not in asked("extended")


def test_it_has_no_right_that_the_webhook_has_not() -> None:
    pod = pod_of("hardened")
    spec = rendering.the("hardened", "Deployment", "gpu-sharing-webhook")["spec"]["template"][
        "spec"
    ]

    assert pod["spec"]["securityContext"] == spec["securityContext"]
    assert (
        pod["spec"]["containers"][0]["securityContext"] == spec["containers"][0]["securityContext"]
    )
    assert pod["spec"]["containers"][0]["image"] == spec["containers"][0]["image"]
    assert pod["spec"]["imagePullSecrets"] == spec["imagePullSecrets"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "test"
