"""Pods that were admitted already: what another policy would have made of what they asked."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sharing.inventory import Inventory, NodeInventory
from tests.support.judging import H100S, apply, container, judge, pod, policies, profile
from tests.support.pods import PODS
from webhook.admission import admit_pod
from webhook.original import as_asked

GPU = "nvidia.com/gpu"
PLACED = profile(
    "placed",
    mode="mps",
    nodeSelector={"pool": "a"},
    tolerations=[{"key": "gpu", "operator": "Exists"}],
    schedulerName="gang",
    runtimeClassName="nvidia",
    accounting=True,
)
OTHER = profile("other", modes=["mig", "mps"], nodeSelector={"pool": "b"}, hideGPUs=True)
KNOWN = policies(PLACED, OTHER)
NODES = Inventory(
    tuple(
        NodeInventory(
            name=f"n-{pool}", offers=H100S.nodes[0].offers, labels={"pool": pool, "zone": "z"}
        )
        for pool in ("a", "b", "z")
    )
)


def admitted(manifest: dict[str, Any]) -> dict[str, Any]:
    verdict, after = judge(manifest, PLACED, NODES)
    assert verdict.allowed, verdict.message
    return after


def test_what_the_profile_wrote_about_nodes_is_taken_as_the_profile_s() -> None:
    asking = pod(container(limits={GPU: "1"}), nodeSelector={"zone": "z"})
    back, unknown = as_asked(admitted(asking), KNOWN)
    assert back["spec"]["nodeSelector"] == {"zone": "z"}
    assert back["spec"]["tolerations"] == []
    assert {"schedulerName", "runtimeClassName"}.isdisjoint(back["spec"])
    (sentence,) = unknown
    assert sentence == (
        "nodeSelector pool, tolerations, schedulerName, runtimeClassName: taken as profile "
        "placed's, not as its author's"
    )
    now, then = judge(asking, OTHER, NODES), judge(back, OTHER, NODES)
    assert now[0].grants == then[0].grants
    assert now[1]["spec"]["nodeSelector"] == then[1]["spec"]["nodeSelector"]


def test_what_the_pod_says_otherwise_stays_its_own() -> None:
    asking = pod(container(limits={GPU: "1"}), nodeSelector={"pool": "z"}, schedulerName="mine")
    back, unknown = as_asked(admitted(asking), KNOWN)
    assert back["spec"]["nodeSelector"] == {"pool": "z"}
    assert back["spec"]["schedulerName"] == "mine"
    assert "nodeSelector" not in unknown[0]


def test_a_pod_without_a_record_is_what_it_is() -> None:
    for manifest in (
        pod(container(limits={GPU: "1"})),
        pod(container(), annotations={"status.gpu.sharing/grants": "junk"}),
        pod(container(), annotations={"status.gpu.sharing/grants": '[{"profile": 7}, 7]'}),
        {},
    ):
        assert as_asked(manifest, KNOWN) == (manifest, ())


def test_a_profile_that_is_gone_is_said() -> None:
    after = admitted(pod(container(limits={GPU: "1"})))
    back, (unknown,) = as_asked(after, policies(OTHER))
    assert back == after
    assert unknown.startswith("profile placed, which admitted it, is gone")


def test_a_share_that_the_record_does_not_explain_is_said() -> None:
    after = admitted(pod(container(limits={GPU: "1"}), container("b")))
    after["spec"]["containers"][0]["resources"]["limits"] = {"gpu.sharing/mps-1of2": "1"}
    after["spec"]["containers"][1]["resources"] = {"limits": {"gpu.sharing/mps-1of8": "1"}}
    _, unknown = as_asked(after, KNOWN)
    assert [sentence.partition(",")[0] for sentence in unknown[:2]] == [
        "container main holds gpu.sharing/mps-1of2",
        "container b holds gpu.sharing/mps-1of8",
    ]


@settings(max_examples=100, deadline=None)
@given(PODS, st.sampled_from(["placed", "mps", "time-slicing", "mig"]))
def test_another_policy_gives_what_it_would_have_given_at_first(
    manifest: dict[str, Any], first: str
) -> None:
    manifest["spec"].pop("nodeSelector", None)
    admitting = admit_pod(manifest, first, KNOWN, NODES)
    if not admitting.grants:
        return
    after = json.loads(json.dumps(apply(admitting, manifest)))
    back, _ = as_asked(after, KNOWN)
    straight = admit_pod(manifest, "other", KNOWN, NODES)
    later = admit_pod(back, "other", KNOWN, NODES)
    assert (later.code, later.grants) == (straight.code, straight.grants)
