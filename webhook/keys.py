"""Our keys among a pod's annotations.

``gpu.sharing/<key>`` is for the pod, ``<container>.gpu.sharing/<key>`` for one container,
``status.gpu.sharing/…`` is ours and never read as a request. Names are compared byte by byte;
an unknown key is an error, since a slip of the finger must not silently give a whole GPU.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sharing.errors import InputError, shown
from sharing.migprofile import MigProfile
from sharing.mode import parse_mode
from sharing.names import FRACTION, MEMORY, MIG_PROFILE, MODE, POD_KEYS, PREFIX, STATUS_PREFIX
from sharing.quantity import mib_of
from webhook.errors import RequestError
from webhook.fraction import parse_fraction

_POD: Final = PREFIX + "/"
_STATUS: Final = STATUS_PREFIX + "/"
_INFIX: Final = "." + PREFIX + "/"
_MOST: Final = 1024
"""Keys of one pod that are read: two for each container that may ask."""
SIZE_KEYS: Final = (FRACTION, MEMORY, MIG_PROFILE)
"""Keys that ask for a share; ``mode`` alone only says how."""

EXAMPLES: Final = {
    FRACTION: 'gpu.sharing/fraction: "0.25"',
    MEMORY: 'gpu.sharing/memory: "10Gi"',
    MODE: 'gpu.sharing/mode: "mps"',
    MIG_PROFILE: 'gpu.sharing/mig-profile: "1g.10gb"',
}


@dataclass(frozen=True, slots=True)
class Written:
    """One key as it was written, with its value read."""

    key: str
    """The whole annotation key."""
    text: str
    value: Any
    """Fraction, MiB, Mode or MigProfile, by the key."""

    @property
    def where(self) -> str:
        """The field's path."""
        return f"metadata.annotations[{self.key}]"

    def __str__(self) -> str:
        return f"{self.key}: {self.text}"


Asked = Mapping[str, Written]
"""By the short key: fraction, memory, mode, mig-profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodKeys:
    """All of our keys on one pod."""

    pod: Asked = field(default_factory=dict)
    by_container: Mapping[str, Asked] = field(default_factory=dict)
    status: tuple[str, ...] = ()
    """Reserved keys that the pod carries, sorted."""

    @property
    def found(self) -> bool:
        """Whether there is any."""
        return bool(self.pod or self.by_container or self.status)


NO_KEYS: Final = PodKeys()


def our_keys(annotations: Mapping[str, Any]) -> list[str]:
    """The keys that are under our prefix, in the pod's order."""
    return [
        key
        for key in annotations
        if "gpu.sharing/" in key and (key.startswith(_POD) or 0 < key.find(_INFIX) < key.find("/"))
    ]


def is_status(key: str) -> bool:
    """Whether a key is reserved for us."""
    return key.startswith(_STATUS)


def read_keys(annotations: Mapping[str, Any], containers: Collection[str]) -> PodKeys:
    """Our keys of a pod, values read.

    Args:
        annotations: The pod's.
        containers: Names of all its containers.

    Raises:
        RequestError: A key is unknown, names no container, or has a value that means nothing.
    """
    keys = our_keys(annotations)
    if not keys:
        return NO_KEYS
    if len(keys) > _MOST:
        raise RequestError(
            "metadata.annotations",
            f"{len(keys)} keys stand under {PREFIX}",
            expected=f"at most {_MOST}",
            fix="write one key for the pod, or one for each container that asks",
            example=EXAMPLES[FRACTION],
        )
    pod: dict[str, Written] = {}
    by_container: dict[str, dict[str, Written]] = {}
    status = []
    for key in sorted(keys):
        domain, _, short = key.partition("/")
        if domain == PREFIX:
            pod[short] = _read(key, short, annotations[key])
            continue
        name = domain.removesuffix("." + PREFIX)
        if is_status(key) and not (name in containers and short in POD_KEYS):
            status.append(key)
            continue
        _check_container(key, name, annotations[key], containers)
        by_container.setdefault(name, {})[short] = _read(key, short, annotations[key])
    _check_sizes(pod)
    for asked in by_container.values():
        _check_sizes(asked)
    return PodKeys(pod=pod, by_container=by_container, status=tuple(status))


def _read(key: str, short: str, value: object) -> Written:
    where = f"metadata.annotations[{key}]"
    read = _READERS.get(short)
    if read is None:
        raise _unknown(where, short, value)
    if not isinstance(value, str):
        raise RequestError(
            where,
            f"{shown(value)} is no text",
            expected="a text, as for every annotation",
            fix="put it in quotes",
            example=EXAMPLES[short],
        )
    try:
        return Written(key, value, read(value))
    except InputError as error:
        raise RequestError(
            where, error.wrong, expected=error.expected, fix=error.fix, example=EXAMPLES[short]
        ) from error


def _mig_profile(text: str) -> MigProfile:
    profile = MigProfile.parse(text)
    if profile.is_split:
        raise InputError(
            "MIG profile",
            f"{shown(text)} splits its instance, so no resource is named for it",
            expected="a MIG profile whose compute instance takes the whole GPU instance",
        )
    return profile


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    FRACTION: parse_fraction,
    MEMORY: mib_of,
    MODE: parse_mode,
    MIG_PROFILE: _mig_profile,
}


def _unknown(where: str, short: str, value: object) -> RequestError:
    if short == "profile":
        fix = "put it on the namespace, as a label"
    else:
        near = difflib.get_close_matches(short, POD_KEYS, n=1)
        fix = f"did you mean {PREFIX}/{near[0]}?" if near else "correct or remove it"
    return RequestError(
        where,
        f"the key {shown(short)} is not known, so {shown(value)} says nothing",
        expected=", ".join(f"{PREFIX}/{key}" for key in POD_KEYS)
        + f", each also as <container>.{PREFIX}/<key>",
        fix=fix,
        example=EXAMPLES[FRACTION],
    )


def _check_container(key: str, name: str, value: object, containers: Collection[str]) -> None:
    if name == "status" and name in containers:
        raise RequestError(
            f"metadata.annotations[{key}]",
            f"keys under {STATUS_PREFIX} are written by gpu-sharing, so a container called "
            "'status' cannot have its own",
            fix=f"rename the container, or write {_POD}<key> for the whole pod",
            example=EXAMPLES[FRACTION],
        )
    if name not in containers:
        known = ", ".join(sorted(filter(None, containers))) or "none"
        raise RequestError(
            f"metadata.annotations[{key}]",
            f"the pod has no container {shown(name)} that {shown(value)} could be for",
            expected=f"one of its containers: {known}",
            fix="correct the name before the dot",
            example=f"{min(filter(None, containers), default='main')}.{EXAMPLES[FRACTION]}",
        )


def _check_sizes(asked: Asked) -> None:
    sizes = [asked[key] for key in SIZE_KEYS if key in asked]
    if len(sizes) > 1:
        raise RequestError(
            sizes[1].where,
            f"{sizes[1]} stands beside {sizes[0]}",
            expected="one of fraction, memory and mig-profile",
            fix="keep the one that matters",
            example=str(sizes[0]),
        )
