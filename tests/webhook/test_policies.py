"""Which profile governs a namespace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sharing.mode import Mode
from tests.support.judging import profile
from webhook.policies import BrokenProfile, Policies

INFERENCE = profile("inference", mode="mps")


def known(**labels: str) -> Policies:
    spelled = {f"gpu.sharing/{key}": value for key, value in labels.items()}
    return Policies(
        namespaces={"ns": spelled, "kube-system": spelled},
        profiles={
            "inference": INFERENCE,
            "mig": profile("mig", mode="mig", migProfile="1g.10gb"),
            "bad": BrokenProfile(name="bad", error="field spec.mode is missing"),
        },
    )


def test_the_profile_label_names_a_profile() -> None:
    assert known(profile="inference").profile_for("ns").profile is INFERENCE


@pytest.mark.parametrize("mode", Mode)
def test_the_mode_label_means_the_built_in_profile_of_that_mode(mode: Mode) -> None:
    governing = known(mode=mode.value).profile_for("ns")
    assert governing.profile is not None
    assert governing.profile.modes == (mode,)
    assert governing.profile.default_mig_profile is None, "not the SharingProfile of that name"


def test_the_profile_label_may_name_a_built_in_profile() -> None:
    governing = known(profile="time-slicing").profile_for("ns")
    assert governing.profile is not None
    assert governing.profile.modes == (Mode.TIME_SLICING,)


def test_a_profile_of_a_built_in_name_stands_in_for_it_under_its_label() -> None:
    governing = known(profile="mig").profile_for("ns")
    assert governing.profile is not None
    assert governing.profile.default_mig_profile is not None


def test_the_profile_label_outranks_the_mode_label() -> None:
    assert known(profile="inference", mode="mig").profile_for("ns").profile is INFERENCE


def test_no_label_an_unknown_namespace_and_exempt_ones_are_untouched() -> None:
    assert known().profile_for("ns").untouched
    assert known(profile="inference").profile_for("elsewhere").untouched
    assert known(profile="inference").profile_for("kube-system").untouched
    assert known().knows("elsewhere")
    assert replace(known(), complete=True).knows("ns")
    assert not replace(known(), complete=True).knows("elsewhere")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"profile": "gone"}, "there is no SharingProfile gone"),
        ({"profile": ""}, "there is no SharingProfile"),
        ({"profile": "bad"}, "field spec.mode is missing"),
        ({"mode": "vgpu"}, "expected one of exclusive, time-slicing, mps, mig"),
        ({"mode": ""}, "is no mode"),
    ],
)
def test_a_label_that_leads_nowhere_is_explained(labels: dict[str, str], words: str) -> None:
    governing = known(**labels).profile_for("ns")
    assert governing.profile is None
    assert not governing.untouched
    assert words in governing.broken
