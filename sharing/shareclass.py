"""Share classes and their resource names: one parser and one printer for all programs.

================================  =====================================
exclusive                         ``nvidia.com/gpu``
MIG                               ``nvidia.com/mig-1g.10gb``
MPS                               ``gpu.sharing/mps-1of4``
time-slicing                      ``gpu.sharing/timeslice-1of4``
cut from a MIG instance           ``gpu.sharing/mig-1g.10gb.timeslice-1of2``
of a pool, any of them            ``team-a.gpu.sharing/mps-1of4``
================================  =====================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sharing.errors import InputError, ResourceNameError, SizeError, shown
from sharing.migprofile import MigProfile
from sharing.mode import Isolation, Mode
from sharing.names import GPU, MILLI_GPU, PREFIX
from sharing.size import OneOf, Size, parse_size, size_key

_MIG_PREFIX: Final = "nvidia.com/mig-"
_POOL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_PART: Final = re.compile(
    r"(?:mig-(?P<cut>[^/]+)\.)?(?P<mode>mps|timeslice)-(?P<size>1of[1-9][0-9]?)", re.ASCII
)
_PART_MODES: Final = {Mode.MPS.token: Mode.MPS, Mode.TIME_SLICING.token: Mode.TIME_SLICING}
RESERVED_POOLS: Final = ("requests", "limits", "status")
"""``requests.`` is refused by Kubernetes itself (quota syntax); ``status.`` is our own prefix."""
_EXPECTED: Final = (
    "nvidia.com/gpu, nvidia.com/mig-<profile>, gpu.sharing/mps-1ofN or gpu.sharing/timeslice-1ofN"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareClass:
    """(pool, mode, size): what all shares of one extended resource have in common."""

    mode: Mode
    size: Size | None = None
    """None for exclusive GPUs, a MIG profile for MIG, ``1ofN`` else."""
    pool: str | None = None
    """The tenants' pool that the GPU is dedicated to."""
    cut_from: MigProfile | None = None
    """The MIG instance that the share is cut from, where it is not a GPU."""

    def __post_init__(self) -> None:
        if self.pool is not None:
            check_pool(self.pool)
        expected = {Mode.EXCLUSIVE: type(None), Mode.MIG: MigProfile}.get(self.mode, OneOf)
        if not isinstance(self.size, expected):
            raise SizeError(
                f"share class of mode {self.mode}",
                f"size {self.size} does not fit the mode",
                expected="1ofN for mps and time-slicing, a MIG profile for mig, none for exclusive",
                example="mps with 1of4",
            )
        if isinstance(self.size, MigProfile) and self.size.is_split:
            raise SizeError(
                "share class",
                f"MIG profile {self.size} splits its instance",
                expected="a MIG profile whose compute instance takes the whole GPU instance",
                example="3g.40gb",
            )
        if self.cut_from is not None and self.mode not in _PART_MODES.values():
            raise SizeError(
                "share class",
                f"mode {self.mode} cannot be cut from MIG instance {self.cut_from}",
                expected="mps or time-slicing",
            )

    @property
    def isolation(self) -> Isolation:
        """The grade of its mode."""
        return self.mode.isolation

    @property
    def instance(self) -> MigProfile | None:
        """The MIG instance that its shares are, or are cut from; None for others."""
        return self.size if isinstance(self.size, MigProfile) else self.cut_from

    @property
    def token(self) -> str:
        """The part of the name that says mode and size, such as ``mps-1of4``."""
        if self.size is None:
            return self.mode.token
        spelled = self.size.resource_token if isinstance(self.size, MigProfile) else self.size
        cut = f"mig-{self.cut_from.resource_token}." if self.cut_from else ""
        return f"{cut}{self.mode.token}-{spelled}"

    @property
    def resource_name(self) -> str:
        """The one extended resource that its shares are advertised as."""
        if self.pool is not None:
            return f"{self.pool}.{PREFIX}/{self.token}"
        if self.mode in (Mode.EXCLUSIVE, Mode.MIG):
            return f"nvidia.com/{self.token}"
        return f"{PREFIX}/{self.token}"

    @property
    def memory_label(self) -> str:
        """The node label that holds the memory, in MiB, of the node's smallest such share."""
        domain = PREFIX if self.pool is None else f"{self.pool}.{PREFIX}"
        return f"{domain}/{self.token}.memory-mib"

    @property
    def sort_key(self) -> tuple[str, int, Fraction, MigProfile, str]:
        """A total order: pool, mode, size from small to large."""
        order = list(Mode).index(self.mode)
        kind, fraction, mig = size_key(self.size if self.size is not None else OneOf(1))
        return (self.pool or "", order * 2 + kind, fraction, mig, str(self.cut_from or ""))

    def __str__(self) -> str:
        return self.resource_name


def check_pool(pool: object) -> str:
    """The pool's name, if it is one.

    Raises:
        InputError: It is no DNS label, or is reserved.
    """
    if not isinstance(pool, str) or not _POOL.fullmatch(pool) or pool in RESERVED_POOLS:
        raise InputError(
            "pool",
            f"{shown(pool)} is not a pool's name",
            expected=f"a DNS label, and none of {', '.join(RESERVED_POOLS)}",
            example="team-a",
        )
    return pool


def parse_resource_name(name: str) -> ShareClass | None:
    """The share class that an extended resource name stands for.

    Returns None for names that are not ours to read: other vendors, ``nvidia.com/gpu.shared``,
    and ``gpu.sharing/milli-gpu``, which counts but is no share.

    Raises:
        ResourceNameError: The name is under our prefix, or NVIDIA's MIG prefix, and malformed.
    """
    if name == GPU:
        return ShareClass(mode=Mode.EXCLUSIVE)
    if name == MILLI_GPU:
        return None
    domain, slash, token = name.partition("/")
    if not slash:
        return None
    try:
        if name.startswith(_MIG_PREFIX):
            return _class_of("mig-" + name.removeprefix(_MIG_PREFIX), None)
        if domain == PREFIX:
            return _part_of(token, None)
        if domain.endswith("." + PREFIX):
            return _class_of(token, check_pool(domain.removesuffix("." + PREFIX)))
    except InputError as error:
        raise ResourceNameError(
            f"resource {shown(name)}",
            error.wrong,
            expected=_EXPECTED,
            example="gpu.sharing/mps-1of4",
        ) from error
    return None


def _class_of(token: str, pool: str | None) -> ShareClass:
    if token == Mode.EXCLUSIVE.token:
        return ShareClass(mode=Mode.EXCLUSIVE, pool=pool)
    if token.startswith("mig-") and not _PART.fullmatch(token):
        profile = MigProfile.from_token(token.removeprefix("mig-"))
        return ShareClass(mode=Mode.MIG, size=profile, pool=pool)
    return _part_of(token, pool)


def _part_of(token: str, pool: str | None) -> ShareClass:
    match = _PART.fullmatch(token)
    if match is None:
        raise SizeError("share class", f"{shown(token)} names no share class")
    return ShareClass(
        mode=_PART_MODES[match["mode"]],
        size=parse_size(match["size"]),
        pool=pool,
        cut_from=MigProfile.from_token(match["cut"]) if match["cut"] else None,
    )
