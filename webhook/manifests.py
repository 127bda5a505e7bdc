"""Policies out of manifests: which objects are profiles, which namespaces, which neither."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sharing.api.model import API_VERSION
from sharing.api.profile import SharingProfile, parse_profile
from sharing.documents import KubeObject
from sharing.errors import InputError, shown

_PROFILE_GROUP: Final = "gpu.sharing/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """Objects, sorted out."""

    profiles: Mapping[str, SharingProfile]
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels by namespace."""
    others: tuple[KubeObject, ...]
    """Everything else, in order."""


def sort_out(objects: Iterable[KubeObject]) -> Manifests:
    """Profiles and namespaces among objects, and the rest.

    An object that stands there twice in the same words is one object.

    Raises:
        InputError: A profile or a namespace is wrong, or two of one name differ.
    """
    profiles: dict[str, SharingProfile] = {}
    namespaces: dict[str, Mapping[str, str]] = {}
    others: list[KubeObject] = []
    for found in objects:
        if found.kind == "SharingProfile" and found.api_version.startswith(_PROFILE_GROUP):
            profile = _profile(found)
            _refuse_second(profiles.setdefault(profile.name, profile).spec, profile.spec, found)
        elif found.kind == "Namespace" and found.api_version == "v1":
            labels = _labels(found)
            _refuse_second(namespaces.setdefault(_name(found), labels), labels, found)
        else:
            others.append(found)
    return Manifests(profiles=profiles, namespaces=namespaces, others=tuple(others))


def _profile(found: KubeObject) -> SharingProfile:
    if found.api_version != API_VERSION:
        raise InputError(
            found.subject, f"apiVersion {shown(found.api_version)} is unknown", expected=API_VERSION
        )
    try:
        return parse_profile(found.value)
    except InputError as error:
        raise error.about(found.where) from error


def _labels(found: KubeObject) -> Mapping[str, str]:
    metadata = found.value.get("metadata") or {}
    labels = metadata.get("labels") or {}
    if not isinstance(labels, dict):
        raise InputError(found.subject, f"labels are {shown(labels)}", expected="a mapping")
    for key, value in labels.items():
        if not isinstance(value, str):
            raise InputError(
                found.subject,
                f"label {key} is {shown(value)}",
                expected="a text",
                fix="put it in quotes",
            )
    return dict(labels)


def _name(found: KubeObject) -> str:
    metadata = found.value.get("metadata") or {}
    if not metadata.get("name"):
        raise InputError(found.subject, "it has no metadata.name", fix="add it")
    return found.name


def _refuse_second(known: object, new: object, found: KubeObject) -> None:
    if known != new:
        raise InputError(
            found.subject, "it is there twice, with different content", fix="remove one of them"
        )
