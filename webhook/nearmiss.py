"""Near misses: keys that nobody reads, and that look as if their author meant ours.

An unknown key under our own prefix is refused (``keys``). What lies outside of it is not ours to
refuse, only to speak about: ``gpu-sharing/fraction`` in place of ``gpu.sharing/fraction`` would
silently give the default size, ``nvidia.com/GPU`` a pod that waits for ever, and so would another
system's resource where the profile does not read that system.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sharing.api.choices import System
from sharing.names import GPU, POD_KEYS, PREFIX, STATUS_PREFIX
from sharing.quantity import MIB, bytes_of
from webhook.container import Container
from webhook.foreign import Vocabulary, vocabulary_of

DOMAINS: Final = "(?i)(^|[.])gpus?[-_.]?shar(e|es|ed|ing)/"
"""Domains that stand for ours, wherever a key holds them; the API server's condition too."""
RESOURCES: Final = "(?i)^nvidia([.]com)?/(gpu|mig)"
"""Resources that stand for NVIDIA's; the API server's condition too."""
_OURS: Final = PREFIX + "/"
_KEY: Final = re.compile(r"(?:(?P<front>[^/]+)\.)?gpus?[-_.]?shar(?:e|es|ed|ing)/(?P<short>[^/]+)")
_NVIDIA: Final = re.compile(r"nvidia(?:\.com)?/(?:(?P<gpu>gpus?)|mig[-_.]?(?P<mig>[0-9]g\..+))")
_LONGEST: Final = 317
"""Characters of a key that Kubernetes takes: 253 of its prefix, a slash, 63 of its name."""
_MOST: Final = 256
"""Annotations or labels that are looked at; no person writes more."""
_KAI_KEYS: Final = ("gpu-fraction", "gpu-memory")
_ALL: Final = vocabulary_of(tuple(System))
_CLOSE: Final = 0.8


class Near(NamedTuple):
    """Something that its author meant otherwise."""

    written: str
    wrong: str
    """What becomes of it, and what to write instead."""

    def __str__(self) -> str:
        return f"{self.written} {self.wrong}"


def _unread(written: str, instead: str) -> Near:
    return Near(written, f"is not read: {instead}")


@lru_cache(maxsize=1024)
def _meant(key: str) -> tuple[str, str] | None:
    """The container and the short key that a key was meant to have."""
    if len(key) > _LONGEST:
        return None
    domain, _, short = key.lower().partition("/")
    match = _KEY.fullmatch(key.lower())
    if match is None and short in POD_KEYS and ("gpu" in domain or "shar" in domain):
        # A slip inside the domain, before a key that is spelled well: gpu.shraing/fraction.
        tail = ".".join(domain.split(".")[-2:])
        if not difflib.get_close_matches(tail, [PREFIX], n=1, cutoff=_CLOSE):
            return None
        return domain.removesuffix(tail).rstrip("."), short
    if match is None or match["front"] == STATUS_PREFIX.partition(".")[0]:
        return None
    near = difflib.get_close_matches(match["short"], POD_KEYS, n=1)
    return (match["front"] or "", near[0]) if near else None


def near_label(key: str) -> Near | None:
    """A pod's label that would say something as an annotation."""
    domain, _, short = key.partition("/")
    if short not in POD_KEYS or not (domain == PREFIX or domain.endswith("." + PREFIX)):
        return None
    return _unread(f"label {key}", "write it as an annotation")


@lru_cache(maxsize=1024)
def near_resource(name: str, vocabulary: Vocabulary) -> Near | None:
    """What a resource was meant to be, or whose it is, if it is none that is read."""
    if len(name) > _LONGEST:
        return None
    small = name.lower()
    match = _NVIDIA.fullmatch(small)
    if match is not None:
        meant = f"nvidia.com/mig-{match['mig']}" if match["mig"] else GPU
        return _unread(name, f"did you mean {meant}?")
    if re.search(DOMAINS, small):
        domain, _, short = small.partition("/")
        pool = domain[: re.search(DOMAINS, domain + "/").start()]  # type: ignore[union-attr]
        return _unread(name, f"did you mean {pool}{'.' if pool else ''}{PREFIX}/{short}?")
    return None if vocabulary.reads(name) else of_another(name)


def of_another(name: str) -> Near | None:
    """Whose resource it is, if another system reads it."""
    if not _ALL.reads(name):
        return None
    systems = [one.value for one in System if vocabulary_of((one,)).reads(name)]
    return _unread(name, f"add {' or '.join(systems)} to the profile's compatibility")


def near_amount(written: str, text: str) -> Near | None:
    """An amount of memory that is legal and that no person means: bytes in place of MiB.

    Other systems count MiB by bare numbers; a quantity of Kubernetes counts bytes.

    Args:
        written: Key and value as messages call them.
        text: The value, a quantity above 0.
    """
    number = bytes_of(text)
    if number >= MIB:
        return None
    bare = f"{text}Mi" if text.isdecimal() else "10Gi"
    return Near(written, f"is {number} bytes, less than 1Mi: did you mean {bare}?")


def near_misses(
    annotations: Mapping[str, Any], containers: Iterable[Container], vocabulary: Vocabulary
) -> list[Near]:
    """Near misses among a pod's annotations.

    Args:
        annotations: The pod's.
        containers: Its containers.
        vocabulary: Other systems' words that are understood.
    """
    if len(annotations) > _MOST:
        return []
    found = []
    # Nearly every key is nobody's slip; it costs one look at what was seen before.
    for key in [key for key in annotations if _meant(key) and _OURS not in key]:
        front, short = _meant(key) or ("", "")
        if not front or any(container.name == front for container in containers):
            meant = f"{front}.{PREFIX}/{short}" if front else f"{PREFIX}/{short}"
            found.append(_unread(key, f"did you mean {meant}?"))
    if System.KAI not in vocabulary.systems:
        instead = f"add {System.KAI} to the profile's compatibility"
        found += [_unread(key, instead) for key in _KAI_KEYS if key in annotations]
    return found


def near_labels(labels: Mapping[str, Any]) -> list[Near]:
    """Labels of a pod that would say something as annotations."""
    if len(labels) > _MOST:
        return []
    found = [near_label(key) for key in labels if _OURS in key]
    return [one for one in found if one is not None]
