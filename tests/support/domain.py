"""Hypothesis strategies for the values of the domain."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import strategies as st

from sharing.layout import GpuLayout
from sharing.migprofile import ATTRIBUTES, MigProfile
from sharing.mode import Mode
from sharing.shareclass import ShareClass
from sharing.size import OneOf, Size

mig_profiles = st.builds(
    MigProfile,
    gpu_slices=st.integers(1, 9),
    memory_gb=st.integers(1, 9999),
    attributes=st.sampled_from(ATTRIBUTES),
)
parts = st.integers(1, 48).map(OneOf)
pools = st.none() | st.from_regex(r"[a-z][a-z0-9]{0,9}", fullmatch=True).filter(
    lambda pool: pool not in ("requests", "limits", "status")
)


@st.composite
def share_classes(draw: st.DrawFn) -> ShareClass:
    mode = draw(st.sampled_from(Mode))
    pool = draw(pools)
    size: Size | None = None
    cut_from = None
    if mode is Mode.MIG:
        size = draw(mig_profiles)
    elif mode is not Mode.EXCLUSIVE:
        size = draw(parts)
        cut_from = draw(st.none() | mig_profiles)
    return ShareClass(mode=mode, size=size, pool=pool, cut_from=cut_from)


@st.composite
def cut_layouts(draw: st.DrawFn) -> GpuLayout:
    """MIG layouts, most of whose instances are cut further."""
    profiles = draw(st.lists(mig_profiles, min_size=1, max_size=4, unique=True))
    counts = [draw(st.integers(1, 3)) for _ in profiles]
    cut = [profile for profile in profiles if draw(st.integers(0, 3))]
    return GpuLayout(
        mode=Mode.MIG,
        sizes=tuple(zip(profiles, counts, strict=True)),
        pool=draw(pools),
        cuts=tuple((profile, replace(draw(part_layouts()), pool=None)) for profile in cut),
    )


@st.composite
def part_layouts(draw: st.DrawFn) -> GpuLayout:
    """Layouts of MPS and time-slicing whose sizes fit one GPU."""
    mode = draw(st.sampled_from([Mode.MPS, Mode.TIME_SLICING]))
    left, sizes = Fraction(1), []
    for size in draw(st.lists(parts, min_size=1, max_size=12)):
        if size.fraction <= left:
            sizes.append((size, 1))
            left -= size.fraction
    return GpuLayout(mode=mode, sizes=tuple(sizes) or ((OneOf(48), 1),), pool=draw(pools))
