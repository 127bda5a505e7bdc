"""Alerts: of metrics that exist, each explained on its page, each fired once by Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from certs.cluster import Outcome as StepOutcome
from certs.metrics import CertsMetrics
from certs.step import Act
from sharing.controller.audit import Slip
from sharing.controller.metrics import ControllerMetrics
from sharing.mps.daemons import MpsDaemons
from sharing.mps.program import stand_in
from sharing.node.clientlists import Known
from sharing.node.health import HealthPolicy, State
from sharing.node.infirmary import Infirmary
from sharing.node.metrics import HealthMetrics
from sharing.node.sharemetrics import ShareMetrics
from sharing.node.status import NodeReport
from sharing.plugin.plugins import DevicePlugins
from sharing.plugin.tally import Refusal
from sharing.timeslicing.policy import ComputePolicy
from sharing.timeslicing.slices import TimeSlices
from tests.chart import rendering
from tests.chart.tool import PROMTOOL
from webhook.metrics import Metrics
from webhook.outcome import Outcome

RULES: Final = rendering.CHART / "files" / "alerts.yaml"
PAGE: Final = rendering.ROOT / "docs" / "operations" / "alerts.md"
FOREIGN: Final = ("kube_", "apiserver_")
"""Metrics of kube-state-metrics and of the API server."""

HOUR: Final = 60
"""Samples of an hour: there is one a minute."""
DAY_S: Final = 86400
Series = dict[str, str]

REFUSED: Final = (
    'apiserver_admission_webhook_rejection_count{name="pods.gpu.sharing",'
    'error_type="calling_webhook_error"}'
)
RESTARTS: Final = (
    'kube_pod_container_status_restarts_total{container="agent",pod="gpu-sharing-agent-a"}'
)
AUTHORITY: Final = 'gpu_sharing_certs_authority_not_after_timestamp_seconds{role="current"}'
LINGERING: Final = 'gpu_sharing_lingering_processes{pod="a",gpu="G"}'
MPS_READY: Final = 'gpu_sharing_mps_daemon_ready{pod="a",gpu="G"}'
MPS_STARTS: Final = 'gpu_sharing_mps_daemon_starts_total{pod="a",gpu="G"}'
DISPUTED: Final = 'gpu_sharing_mps_disputed_clients{pod="a",gpu="G",known="driver"}'
HELD: Final = 'gpu_sharing_refusals_total{pod="a",resource="gpu.sharing/mps-1of4",reason="held"}'
SERVED: Final = 'gpu_sharing_webhook_certificate_not_after_timestamp_seconds{pod="w"}'

WELL: Final[Series] = {
    'kube_deployment_status_replicas_available{deployment="gpu-sharing-webhook"}': "2x200",
    'kube_deployment_spec_replicas{deployment="gpu-sharing-webhook"}': "2x200",
    'kube_deployment_status_replicas_available{deployment="gpu-sharing-controller"}': "2x200",
    'kube_daemonset_status_number_unavailable{daemonset="gpu-sharing-agent"}': "0x200",
    RESTARTS: "2x200",
    REFUSED: "7x200",
    'apiserver_admission_webhook_fail_open_count{name="pods.gpu.sharing"}': "7x200",
    'gpu_sharing_webhook_reviews_total{outcome="failed"}': "0x200",
    'gpu_sharing_webhook_reviews_total{outcome="overloaded"}': "0x200",
    'gpu_sharing_webhook_review_duration_seconds_bucket{le="0.001"}': "0+600x200",
    'gpu_sharing_webhook_review_duration_seconds_bucket{le="1"}': "0+600x200",
    'gpu_sharing_webhook_review_duration_seconds_bucket{le="+Inf"}': "0+600x200",
    'gpu_sharing_webhook_cache_age_seconds{pod="w",kind="nodes"}': "30x200",
    'gpu_sharing_webhook_profiles{state="broken"}': "0x200",
    SERVED: f"{20 * DAY_S}x200",
    "gpu_sharing_webhook_nodes": "3x200",
    'gpu_sharing_webhook_offered_shares{mode="mps"}': "8x200",
    'gpu_sharing_webhook_offered_shares{mode="mig"}': "0x200",
    'gpu_sharing_certs_leaf_renewal_timestamp_seconds{pod="w"}': f"{10 * DAY_S}x200",
    AUTHORITY: f"{20 * DAY_S}x200",
    "gpu_sharing_certs_bundle_not_after_timestamp_seconds": f"{20 * DAY_S}x200",
    'gpu_sharing_certs_steps_total{act="repair"}': "1x200",
    'gpu_sharing_certs_steps_total{act="heal"}': "1x200",
    'gpu_sharing_certs_attempts_total{pod="w",result="failed"}': "0x200",
    'gpu_sharing_certs_swap_failures_total{pod="w",fault="mismatch"}': "0x200",
    'gpu_sharing_controller_leading{pod="c1"}': "1x200",
    'gpu_sharing_controller_leading{pod="c2"}': "0x200",
    "gpu_sharing_controller_silent_nodes": "0x200",
    "gpu_sharing_controller_unready_layouts": "0x200",
    "gpu_sharing_controller_waiting_evictions": "0x200",
    LINGERING: "0x200",
    'gpu_sharing_over_budget_shares{pod="a"}': "0x200",
    MPS_READY: "1x200",
    MPS_STARTS: "1x200",
    DISPUTED: "0x200",
    'gpu_sharing_mps_disputed_clients{pod="a",gpu="G",known="daemon"}': "1x200",
    'gpu_sharing_shares_held_twice{pod="a"}': "0x200",
    HELD: "0x200",
    'gpu_sharing_refusals_total{pod="a",resource="gpu.sharing/mps-1of4",reason="not-ready"}': (
        "0+1x200"
    ),
    'gpu_sharing_time_slice_unset{pod="a",gpu="H"}': "0x200",
    'gpu_sharing_controller_ungranted_containers{kind="share"}': "0x200",
}
"""An installation that is well, from the epoch on, for 200 minutes."""

ILL: Final[dict[str, Series]] = {
    "GpuSharingWebhookDown": {
        'kube_deployment_status_replicas_available{deployment="gpu-sharing-webhook"}': "0x200"
    },
    "GpuSharingWebhookDegraded": {
        'kube_deployment_status_replicas_available{deployment="gpu-sharing-webhook"}': "1x200"
    },
    "GpuSharingReviewsUnanswered": {REFUSED: "0+1x200"},
    "GpuSharingReviewsPassedUnseen": {
        'apiserver_admission_webhook_fail_open_count{name="pods.gpu.sharing"}': "0+1x200"
    },
    "GpuSharingReviewsFail": {'gpu_sharing_webhook_reviews_total{outcome="failed"}': "0+1x200"},
    "GpuSharingReviewsShed": {'gpu_sharing_webhook_reviews_total{outcome="overloaded"}': "0+5x200"},
    "GpuSharingReviewsSlow": {
        'gpu_sharing_webhook_review_duration_seconds_bucket{le="0.001"}': "0+1x200"
    },
    "GpuSharingWebhookBlind": {
        'gpu_sharing_webhook_cache_age_seconds{pod="w",kind="nodes"}': "0+60x200"
    },
    "GpuSharingProfileBroken": {'gpu_sharing_webhook_profiles{state="broken"}': "1x200"},
    "GpuSharingCertificateEndsSoon": {SERVED: f"{5 * DAY_S}x200"},
    "GpuSharingCertificateEnds": {SERVED: "80000x200"},
    "GpuSharingRenewalOverdue": {
        'gpu_sharing_certs_leaf_renewal_timestamp_seconds{pod="w"}': "-30000x200"
    },
    "GpuSharingAuthorityEndsSoon": {AUTHORITY: f"{5 * DAY_S}x200"},
    "GpuSharingBundleUntrusting": {"gpu_sharing_certs_bundle_not_after_timestamp_seconds": "0x200"},
    "GpuSharingBundleContested": {'gpu_sharing_certs_steps_total{act="repair"}': "0+1x200"},
    "GpuSharingCertsSecretContested": {'gpu_sharing_certs_steps_total{act="heal"}': "0+1x200"},
    "GpuSharingRotationFails": {
        'gpu_sharing_certs_attempts_total{pod="w",result="failed"}': "0+1x200"
    },
    "GpuSharingCertificateRejected": {
        'gpu_sharing_certs_swap_failures_total{pod="w",fault="mismatch"}': "0+1x200"
    },
    "GpuSharingAgentUnavailable": {
        'kube_daemonset_status_number_unavailable{daemonset="gpu-sharing-agent"}': "2x200"
    },
    "GpuSharingAgentRestarts": {RESTARTS: "0+1x200"},
    "GpuSharingNothingOffered": {'gpu_sharing_webhook_offered_shares{mode="mps"}': "0x200"},
    "GpuSharingControllerDown": {
        'kube_deployment_status_replicas_available{deployment="gpu-sharing-controller"}': "0x200"
    },
    "GpuSharingControllerLeaderless": {'gpu_sharing_controller_leading{pod="c1"}': "0x200"},
    "GpuSharingAgentSilent": {"gpu_sharing_controller_silent_nodes": "1x200"},
    "GpuSharingLayoutUnready": {"gpu_sharing_controller_unready_layouts": "1x200"},
    "GpuSharingGpuIll": {
        'gpu_sharing_gpu_fault_since_timestamp_seconds{gpu="G",state="unhealthy"}': "60x200"
    },
    "GpuSharingShareStillInUse": {LINGERING: "2x200"},
    "GpuSharingMemoryOverBudget": {'gpu_sharing_over_budget_shares{pod="a"}': "1x200"},
    "GpuSharingMpsDaemonDown": {MPS_READY: "0x200"},
    "GpuSharingMpsDaemonRestarts": {MPS_STARTS: "0+1x200"},
    "GpuSharingMpsClientDisputed": {DISPUTED: "1x200"},
    "GpuSharingShareHeldTwice": {'gpu_sharing_shares_held_twice{pod="a"}': "0x100 1x100"},
    "GpuSharingShareRefused": {HELD: "0x100 1x100"},
    "GpuSharingTimeSliceUnset": {'gpu_sharing_time_slice_unset{pod="a",gpu="H"}': "1x200"},
    "GpuSharingEvictionsWait": {"gpu_sharing_controller_waiting_evictions": "1x200"},
    "GpuSharingUngranted": {'gpu_sharing_controller_ungranted_containers{kind="share"}': "1x200"},
}
"""What is different from a well installation when an alert has to fire."""

ALSO: Final = {
    "GpuSharingWebhookDown": {"GpuSharingWebhookDegraded"},
    "GpuSharingCertificateEnds": {"GpuSharingCertificateEndsSoon"},
}
"""Alerts that rightly come with another one."""


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"]:
        yield from group["rules"]


@cache
def metrics() -> dict[str, Metric]:
    """Every metric that our programs have, by the names of their samples."""
    ours = Metrics()
    registry = CollectorRegistry()
    CertsMetrics(registry)
    ControllerMetrics(registry)
    infirmary = Infirmary(HealthPolicy(), {})
    registry.register(HealthMetrics(NodeReport, infirmary))
    folder = Path("nothing-is-written-here")
    registry.register(
        ShareMetrics(
            NodeReport,
            DevicePlugins(folder, cdi_dir=None),
            MpsDaemons(folder, program=stand_in()),
            TimeSlices(ComputePolicy(), folder),
        )
    )
    found: dict[str, Metric] = {}
    for metric in (*ours.registry.collect(), *registry.collect()):
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
        for suffix in suffixes.get(metric.type, [""]):
            found[metric.name + suffix] = metric
    return found


def test_alerts_are_about_metrics_that_exist() -> None:
    for rule in rules():
        named = set(re.findall(r"\b([a-z]+_[a-z_]+)\b(?=[{)\[ ]|$)", rule["expr"]))
        named = {name for name in named if name.startswith(("gpu_sharing_", *FOREIGN))}

        assert named, rule["alert"]
        assert {name for name in named if name.startswith("gpu_")} <= metrics().keys()


def test_alerts_select_labels_that_programs_set() -> None:
    values = {
        "outcome": {each.value for each in Outcome},
        "act": {each.value for each in Act},
        "result": {each.value for each in StepOutcome},
        "state": {"broken", "usable"},
        "role": {"current", "next"},
        "kind": {each.value for each in Slip},
        "known": {each.value for each in Known},
    }
    states = {str(each) for each in State}
    for rule in rules():
        for name, value in re.findall(r'([a-z]+)="([a-z_]+)"', rule["expr"]):
            assert name not in values or value in values[name], rule["alert"]
        for alternatives in re.findall(r'state=~"([a-z|]+)"', rule["expr"]):
            assert set(alternatives.split("|")) <= states
        for alternatives in re.findall(r'reason=~"([a-z|-]+)"', rule["expr"]):
            assert set(alternatives.split("|")) <= {str(each) for each in Refusal}


def test_each_alert_says_what_happened_and_how_bad_it_is() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"]["summary"].endswith(".")


def test_the_page_explains_each_alert_and_no_other() -> None:
    explained = re.findall(r"^### (GpuSharing\w+)$", PAGE.read_text("utf-8"), re.MULTILINE)

    assert explained == [rule["alert"] for rule in rules()]


def test_the_chart_renders_these_rules() -> None:
    rendered = rendering.the("monitoring", "PrometheusRule", "gpu-sharing")

    assert rendered["spec"] == yaml.safe_load(RULES.read_text("utf-8"))


def check(folder: Path, series: Series, firing: set[str]) -> None:
    """Have promtool evaluate all rules on these series and compare what fires at two hours."""
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": value} for name, value in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "120m",
                "exp_samples": [
                    {"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(firing)
                ],
            }
        ],
    }
    path = folder / "test.yaml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]})
    )
    done = PROMTOOL.run("test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_its_illness() -> None:
    assert set(ILL) == {rule["alert"] for rule in rules()}


@pytest.mark.usefixtures("with_promtool")
def test_nothing_fires_where_all_is_well(tmp_path: Path) -> None:
    check(tmp_path, WELL, set())


@pytest.mark.usefixtures("with_promtool")
@pytest.mark.parametrize("alert", sorted(ILL))
def test_an_alert_fires_for_its_illness_and_no_other_does(alert: str, tmp_path: Path) -> None:
    check(tmp_path, WELL | ILL[alert], {alert} | ALSO.get(alert, set()))


@pytest.mark.usefixtures("with_promtool")
def test_the_rules_are_sound_to_prometheus() -> None:
    done = PROMTOOL.run("check", "rules", str(RULES))

    assert done.returncode == 0, done.stdout + done.stderr
