"""A small world for fuzzers, and what must hold of every answer in it."""

from __future__ import annotations

import base64
import copy
from typing import Any, Final

import jsonpatch
import orjson

from sharing.inventory import Inventory, NodeInventory
from tests.support.judging import H100S, offers, policies, profile
from webhook.answer import answer_body
from webhook.outcome import Outcome
from webhook.snapshot import Snapshot

_SYSTEMS: Final = ["hami", "kai", "nos", "aliyun", "volcano", "nvidia-shared"]
PROFILES: Final = [
    profile("fall", modes=["mig", "mps", "exclusive"], hideGPUs=True, accounting=True),
    profile("open", mode="time-slicing", allowedModes=["mps", "mig"], onUnsatisfiable="admit"),
    profile("keep", mode="mig", wholeGPU="keep", migProfile="2g.20gb", privileged="allow"),
    profile(
        "placed", mode="mps", allowedSizes=["1of2", "1of4"], memory={"default": "10Gi"},
        nodeSelector={"pool": "a"}, schedulerName="gang", workloads="deny",
        tolerations=[{"key": "gpu", "operator": "Exists"}], onUnsatisfiable="admit",
    ),
    profile("moving", modes=["mps", "exclusive"], compatibility=_SYSTEMS, multiGPU="exclusive"),
    profile("pool", modes=["mps", "exclusive"], pool="team-a"),
    profile("warned", mode="mps", enforcement="warn"),
]  # fmt: skip
_KNOWN: Final = policies(*PROFILES, lost={"gpu.sharing/profile": "gone"})
_PLAIN: Final = offers(("gpu.sharing/mps-1of2", 40000, 500), ("nvidia.com/gpu", 81559, 1000))
SNAPSHOTS: Final = [
    Snapshot(policies=_KNOWN, inventory=H100S),
    Snapshot(
        policies=_KNOWN,
        inventory=Inventory(
            (
                NodeInventory(name="n1", offers=H100S.nodes[0].offers, labels={"pool": "a"}),
                NodeInventory(name="n2", offers=_PLAIN.offers, labels={"zone": "a"}),
            )
        ),
    ),
    Snapshot(policies=_KNOWN, inventory=Inventory()),
    Snapshot(policies=_KNOWN, inventory=None),
]
NAMESPACES: Final = sorted(_KNOWN.namespaces)
_MOST_ANSWER: Final = 64 * 2**10
_STATUSES: Final = (200, 400)


def check(body: bytes, snapshot: Snapshot, answered: tuple[int, bytes] | None = None) -> None:
    """Fail where an answer breaks a promise.

    Args:
        body: What was sent.
        snapshot: What the server knew.
        answered: Status and body of a server's answer; worked out here where there is none.
    """
    if answered is None:
        mine = answer_body(body, snapshot).answer
        assert mine.outcome is not Outcome.FAILED, mine.body
        answered = (mine.outcome.http_status, mine.body)
    status, raw = answered
    assert status in _STATUSES, (status, raw)
    assert len(raw) < 20 * len(body) + _MOST_ANSWER
    if status != 200:
        return
    answer = orjson.loads(raw)
    response, request = answer["response"], orjson.loads(body)["request"]
    assert (answer["apiVersion"], response["uid"]) == ("admission.k8s.io/v1", request["uid"])
    assert all(len(text) < 120 and "\n" not in text for text in response.get("warnings", ()))
    assert ("patch" in response) == ("patchType" in response)
    if not response["allowed"]:
        assert 400 <= response["status"]["code"] < 500
        assert response["status"]["message"]
        assert "patch" not in response
    elif "patch" in response:
        _check_patch(body, request, response["patch"], snapshot)


def _check_patch(body: bytes, request: dict[str, Any], patch: str, snapshot: Snapshot) -> None:
    operations = orjson.loads(base64.b64decode(patch))
    assert operations
    before = copy.deepcopy(request["object"])
    after = jsonpatch.apply_patch(before, operations)
    if (request.get("kind") or {}).get("kind") == "Pod":
        _check_pod(after)
    again = orjson.loads(body)
    again["request"]["object"] = after
    second = orjson.loads(answer_body(orjson.dumps(again), snapshot).answer.body)["response"]
    assert second["allowed"], second
    assert "patch" not in second, orjson.loads(base64.b64decode(second["patch"]))


def _check_pod(pod: dict[str, Any]) -> None:
    """What the API server would refuse, or the kubelet fail on."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    granted = orjson.loads(annotations.get("status.gpu.sharing/grants", "[]"))
    for container in _containers(pod):
        resources = container.get("resources") or {}
        limits, requests = (resources.get(part) or {} for part in ("limits", "requests"))
        mine = [grant for grant in granted if grant["container"] == container.get("name")]
        for grant in mine:
            assert limits[grant["resource"]] in (str(grant["count"]), grant["count"], "1000m")
            assert requests.get(grant["resource"], limits[grant["resource"]]) is not None
            named = [key for key in limits if _is_share(key) and limits[key] not in ("0", 0)]
            assert named == [grant["resource"]]


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    spec = pod.get("spec") or {}
    listed = (spec.get("containers") or []) + (spec.get("initContainers") or [])
    return [one for one in listed if isinstance(one, dict)]


def _is_share(key: str) -> bool:
    ours = key.startswith(("gpu.sharing/", "nvidia.com/mig-")) or ".gpu.sharing/" in key
    return (ours and key != "gpu.sharing/milli-gpu") or key == "nvidia.com/gpu"
