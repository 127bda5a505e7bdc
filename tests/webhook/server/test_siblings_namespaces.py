"""Kin of reported faults: a namespace that is younger than what the webhook knows."""

from __future__ import annotations

from dataclasses import replace

import orjson

from tests.support.admission import MPS, Served, pod, review


async def test_pods_of_a_namespace_that_was_not_seen_yet_wait_for_its_policy(
    served: Served,
) -> None:
    # gatekeeper#1015: the cache lags behind a new namespace, whose first pods would pass by it.
    known = replace(MPS.policies, complete=True)
    served.current[0] = replace(MPS, policies=known)
    body = orjson.dumps(review(pod(), namespace="team-new"))
    status, headers, text = await served.post(body)
    assert (status, headers["Retry-After"]) == (503, "1")
    assert "'team-new' has not been seen yet" in text

    labels = {**known.namespaces, "team-new": {"gpu.sharing/mode": "mps"}, "plain": {}}
    served.current[0] = replace(MPS, policies=replace(known, namespaces=labels))
    answer = await served.ask(review(pod(), namespace="team-new"))
    assert answer["response"]["patchType"] == "JSONPatch"
    assert "patch" not in (await served.ask(review(pod(), namespace="plain")))["response"]
