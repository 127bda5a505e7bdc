"""Policies: which SharingProfile governs a namespace. Two look-ups, however many there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sharing.api.profile import SharingProfile, builtin_profiles
from sharing.errors import shown
from sharing.mode import Mode
from sharing.names import MODE_LABEL, PROFILE_LABEL
from webhook.workload import TEMPLATE_PATHS, TemplatePath

EXEMPT_NAMESPACES: Final = frozenset(
    {"gpu-sharing", "kube-system", "kube-node-lease", "kube-public"}
)
"""Never governed, whatever their labels: the cluster must be able to start without us, and we
without ourselves."""

_BUILTIN: Final = builtin_profiles()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenProfile:
    """A SharingProfile that exists and cannot be used."""

    name: str
    error: str
    """One sentence: field, value, what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Governing:
    """What governs a namespace: nothing, a profile, or a label that leads nowhere."""

    profile: SharingProfile | None = None
    broken: str = ""
    """Why the namespace's label gives no usable profile; one sentence that names it."""

    @property
    def untouched(self) -> bool:
        """Whether the namespace carries no label of ours."""
        return self.profile is None and not self.broken


UNTOUCHED: Final = Governing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """All namespaces and profiles as last seen; swapped as a whole."""

    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    """Labels by namespace."""
    profiles: Mapping[str, SharingProfile | BrokenProfile] = field(default_factory=dict, hash=False)
    """Profiles by name; the built-in ones need not be listed."""
    complete: bool = False
    """Whether all namespaces of a cluster are listed, so that another one is newer than this."""
    template_paths: Mapping[str, tuple[TemplatePath, ...]] = field(
        default_factory=lambda: TEMPLATE_PATHS, hash=False
    )
    """Where kinds keep their pod templates; an operator may add some."""

    def knows(self, namespace: str) -> bool:
        """Whether the namespace has been seen, where all are: a watch lags behind a new one."""
        return not self.complete or namespace in self.namespaces

    def find(self, name: str) -> SharingProfile | None:
        """The usable profile of this name, built-in ones included."""
        found = self.profiles.get(name, _BUILTIN.get(name))
        return found if isinstance(found, SharingProfile) else None

    def profile_for(self, namespace: str) -> Governing:
        """What governs a namespace. The profile label wins over the mode label."""
        labels = self.namespaces.get(namespace)
        if not labels or namespace in EXEMPT_NAMESPACES:
            return UNTOUCHED
        name = labels.get(PROFILE_LABEL)
        if name is not None:
            return self._named(namespace, name)
        mode = labels.get(MODE_LABEL)
        return UNTOUCHED if mode is None else _built_in(namespace, mode)

    def _named(self, namespace: str, name: str) -> Governing:
        found = self.profiles.get(name)
        if found is None and (built_in := _BUILTIN.get(name)) is not None:
            return Governing(profile=built_in)
        if isinstance(found, SharingProfile):
            return Governing(profile=found)
        if found is None:
            return Governing(
                broken=f"namespace {namespace} carries the label {PROFILE_LABEL}: {name}, but "
                f"there is no SharingProfile {name}; create it or correct the label"
            )
        return Governing(broken=f"SharingProfile {name} of namespace {namespace}: {found.error}")


def _built_in(namespace: str, mode: str) -> Governing:
    found = _BUILTIN.get(mode)
    if found is not None:
        return Governing(profile=found)
    return Governing(
        broken=f"namespace {namespace} carries the label {MODE_LABEL}: {shown(mode)}, which is no "
        f"mode; expected one of {', '.join(Mode)}; correct the label"
    )
