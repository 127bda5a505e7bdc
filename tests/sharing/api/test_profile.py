"""SharingProfile: what a person writes becomes a policy, or one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from sharing.api.choices import MultiGpu, WholeGpu
from sharing.api.profile import SharingProfile, builtin_profiles, parse_profile
from sharing.errors import InputError
from sharing.mode import Isolation, Mode
from sharing.size import OneOf


def read(**spec: Any) -> SharingProfile:
    return parse_profile({"metadata": {"name": "p"}, "spec": spec})


def test_every_field_of_the_manifest_is_read_by_its_spelling() -> None:
    one = read(
        modes=["mig", "mps"],
        defaultSize="1of4",
        migProfile="1g.10gb",
        allowedModes=["mps", "mig"],
        allowedSizes=["1of8", "1of2", "1of4"],
        minIsolation="limits",
        wholeGPU="keep",
        multiGPU="deny",
        migProfiles=["1g.10gb", "1g.24gb+me"],
        memory={"max": "40Gi"},
        pool="team-a",
        nodeSelector={"b": "2", "a": "1"},
        tolerations=[
            {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
        ],
        runtimeClassName="nvidia",
        schedulerName="gang",
        hideGPUs=True,
        privileged="allow",
        onUnsatisfiable="admit",
        onFault="evict",
        accounting=True,
        enforcement="audit",
    )
    assert one.modes == (Mode.MIG, Mode.MPS)
    assert one.sizes == (OneOf(8), OneOf(4), OneOf(2)), "smallest first"
    assert one.default_size == OneOf(4)
    assert one.multi_gpu is MultiGpu.DENY
    assert one.most_memory_mib == 40 * 1024
    assert one.node_selector == (("a", "1"), ("b", "2"))
    assert one.tolerations == (
        {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
    )
    assert one.spec.whole_gpu is WholeGpu.KEEP
    assert one.spec.hide_gpus
    assert one.spec.min_isolation is Isolation.LIMITS


def test_the_defaults_are_the_safe_ones() -> None:
    one = read(mode="mps")
    assert one.spec.privileged == "deny"
    assert one.spec.on_unsatisfiable == "deny"
    assert one.spec.on_fault == "ignore"
    assert one.multi_gpu is MultiGpu.DENY
    assert one.permitted_modes == {Mode.MPS}
    assert one.default_size == OneOf(4)
    assert not one.spec.hide_gpus
    assert not one.spec.accounting


@pytest.mark.parametrize(
    ("allowed", "default"), [(["1of2"], 2), (["1of8", "1of3"], 3), (["1of8"], 8), (["1of4"], 4)]
)
def test_without_a_default_size_an_allowed_one_is_taken(allowed: list[str], default: int) -> None:
    assert read(mode="mps", allowedSizes=allowed).default_size == OneOf(default)


@pytest.mark.parametrize("spec", [{"mode": "exclusive"}, {"mode": "mps", "wholeGPU": "keep"}])
def test_where_whole_gpus_are_given_several_are_too(spec: dict[str, Any]) -> None:
    assert read(**spec).multi_gpu is MultiGpu.EXCLUSIVE


def test_modes_that_isolate_too_little_are_left_out() -> None:
    one = read(modes=["time-slicing", "mps", "mig"], minIsolation="limits")
    assert one.modes == (Mode.MPS, Mode.MIG)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "exactly one of them is needed"),
    ({"mode": "mps", "modes": ["mig"]}, "exactly one of them is needed"),
    ({"modes": []}, "modes"),
    ({"modes": ["mps", "mps"]}, "listed twice"),
    ({"mode": "vgpu"}, "mode"),
    ({"mode": "mps", "minIsolation": "hardware"}, "hardware is above what its modes give"),
    ({"mode": "mps", "defaultSize": "1of3", "allowedSizes": ["1of2"]}, "not among allowedSizes"),
    ({"mode": "mps", "defaultSize": "1of49"}, "out of range"),
    ({"mode": "mps", "defaultSize": "1g.10gb"}, "is a MIG profile"),
    ({"mode": "mps", "defaultSize": 4}, "defaultSize"),
    ({"mode": "mps", "allowedSizes": ["quarter"]}, "'quarter' is no size"),
    ({"mode": "mig", "migProfile": "1g.10gb", "migProfiles": ["2g.20gb"]}, "not among migProfiles"),
    ({"mode": "mig", "migProfile": "1c.2g.20gb"}, "splits its instance"),
    ({"mode": "mps", "migProfile": "1g.10gb"}, "can never be used"),
    ({"mode": "mps", "memory": {"max": "1Gi", "default": "2Gi"}}, "default 2Gi is above max 1Gi"),
    ({"mode": "mps", "memory": {"max": "0"}}, "is no amount of memory"),
    ({"mode": "mps", "memory": {"max": True}}, "is no quantity"),
    ({"mode": "mps", "defaultSize": "1of4", "memory": {"default": "2Gi"}}, "both say what"),
    ({"mode": "mps", "pool": "requests"}, "is not a pool's name"),
    ({"mode": "mps", "pool": "A"}, "is not a pool's name"),
    ({"mode": "mps", "hideGPUS": True}, "unknown field hideGPUS"),
    ({"mode": "mps", "tolerations": [{"keys": "x"}]}, "unknown field tolerations[0].keys"),
    ({"mode": "mps", "nodeSelector": {"a": 1}}, "field nodeSelector.a is 1"),
    ({"mode": "mps", "nodeSelector": {"a b": "x"}}, "'a b' is no key of a label"),
    ({"mode": "mps", "nodeSelector": {"/a": "x"}}, "'/a' is no key of a label"),
    ({"mode": "mps", "nodeSelector": {"x" * 254 + "/a": "x"}}, "is no key of a label"),
    ({"mode": "mps", "nodeSelector": {"a": "x y"}}, "'x y' is no value of a label"),
    ({"mode": "mps", "nodeSelector": {"a": "x" * 64}}, "is no value of a label"),
    ({"mode": "mps", "runtimeClassName": "NVIDIA"}, "'NVIDIA' is no name of an object"),
    ({"mode": "mps", "runtimeClassName": ""}, "'' is no name of an object"),
    ({"mode": "mps", "tolerations": [{"value": "x"}]}, "its operator is not Exists"),
    (
        {"mode": "mps", "tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        "operator Exists compares no value",
    ),
    ({"mode": "mps", "tolerations": [{"key": "a b"}]}, "'a b' is no key of a label"),
]


@pytest.mark.parametrize(("spec", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_profile_that_contradicts_itself_is_refused(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(**spec)
    assert words.removeprefix("unknown field ") in str(caught.value)
    assert "SharingProfile 'p'" in str(caught.value)


@pytest.mark.parametrize("manifest", [None, [], {}, {"metadata": {}}, {"metadata": {"name": 7}}])
def test_what_is_no_manifest_is_refused(manifest: Any) -> None:
    with pytest.raises(InputError, match=r"metadata\.name"):
        parse_profile(manifest)


def test_a_profile_without_a_spec_is_refused() -> None:
    with pytest.raises(InputError, match="is no mapping"):
        parse_profile({"metadata": {"name": "p"}})


def test_there_is_a_built_in_profile_for_each_mode() -> None:
    built_in = builtin_profiles()
    assert set(built_in) == set(Mode)
    assert all(one.modes == (Mode(name),) for name, one in built_in.items())
