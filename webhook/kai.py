"""KAI Scheduler's annotations, read as asks of ours.

Source: NVIDIA/KAI-Scheduler, docs/gpu-sharing; the annotations of version 0.18,
``nvidia.cdi.k8s.io/<container>.gpu-memory.request``, as its design describes them (KAI#1505).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from sharing.errors import InputError, shown
from sharing.quantity import mib_of
from webhook.ask import ForeignAsk, Form, Want
from webhook.container import Container
from webhook.errors import RequestError
from webhook.fraction import parse_fraction
from webhook.keys import Written

_SIZES: Final = ("gpu-fraction", "gpu-memory")
_COUNT: Final = "gpu-fraction-num-devices"
_CONTAINER: Final = "gpu-fraction-container-name"
_CDI: Final = re.compile(r"nvidia\.cdi\.k8s\.io/(?P<name>.+)\.gpu-memory\.(request|limit)")
_QUEUE: Final = "kai.scheduler/queue"
_DECIMAL: Final = re.compile(r"0?\.[0-9]{1,12}", re.ASCII)
_WHOLE: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


def asked_in_annotations(
    annotations: Mapping[str, Any], containers: Sequence[Container], served: str = ""
) -> dict[str, ForeignAsk]:
    """What KAI's annotations ask for, by container name.

    Args:
        annotations: The pod's.
        containers: Its containers, app containers first.
        served: The container that an earlier pass served by them, if any: another webhook may
            have put one in front of it since.

    Raises:
        RequestError: A value means nothing, two forms stand side by side, or no container has
            the name.
    """
    asks = {}
    names = dict.fromkeys(container.name for container in containers)
    found = [key for key in _SIZES if key in annotations]
    if len(found) > 1:
        where = f"metadata.annotations[{found[1]}]"
        raise wrong_value(
            where, f"it stands beside {found[0]}", "one of them", "gpu-fraction: '0.5'"
        )
    for key in found:
        name = str(annotations.get(_CONTAINER, served or next(iter(names), "")))
        _check_named(_CONTAINER, name, names)
        asks[name] = _asked(annotations, key)
    for key in sorted(annotations):
        match = _CDI.fullmatch(key)
        if match is not None and match[2] == "request":
            _check_named(key, match["name"], names)
            written = _read(annotations, key, mib_of, "30Gi")
            want = Want(form=Form.MEMORY, memory_mib=written.value)
            asks[match["name"]] = ForeignAsk(want, str(written), written, counted=False)
    return asks


def _asked(annotations: Mapping[str, Any], key: str) -> ForeignAsk:
    count = 1
    if _COUNT in annotations:
        count = _read(annotations, _COUNT, _count, "2").value
    if key == "gpu-fraction":
        written = _read(annotations, key, _fraction, "0.5")
        want = Want(form=Form.FRACTION, number=count, fraction=written.value)
    else:
        written = _read(annotations, key, _count, "2000")
        want = Want(form=Form.MEMORY, number=count, memory_mib=written.value)
    text = str(written) if count == 1 else f"{_COUNT}: {count} with {written}"
    return ForeignAsk(want, text, written, counted=False)


def _read(
    annotations: Mapping[str, Any], key: str, read: Callable[[str], Any], example: str
) -> Written:
    value = annotations[key]
    where = f"metadata.annotations[{key}]"
    try:
        if not isinstance(value, str):
            raise InputError(key, f"{shown(value)} is no text", expected="a text")
        return Written(key, value, read(value))
    except InputError as error:
        raise wrong_value(where, error.wrong, error.expected, f'{key}: "{example}"') from error


def _fraction(text: str) -> Fraction:
    if not _DECIMAL.fullmatch(text):
        raise InputError(
            "fraction", f"{shown(text)} is no fraction", expected="a decimal between 0 and 1"
        )
    return parse_fraction(text)


def _count(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise InputError("number", f"{shown(text)} is no count", expected="a whole number above 0")
    return int(text)


def lost_in_annotations(
    annotations: Mapping[str, Any], labels: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Keys that are not carried over, each with what to do instead."""
    limits = [key for key in sorted(annotations) if key.endswith(".gpu-memory.limit")]
    lost = [
        (key, "a share has one size; its request counts") for key in limits if _CDI.fullmatch(key)
    ]
    if _QUEUE in labels:
        lost.append((_QUEUE, "quota is a ResourceQuota of the namespace"))
    return lost


def _check_named(key: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        known = ", ".join(filter(None, names)) or "none"
        raise wrong_value(
            f"metadata.annotations[{key}]",
            f"the pod has no container {shown(name)}",
            f"one of its containers: {known}",
            "gpu-fraction-container-name: main",
        )


def wrong_value(where: str, wrong: str, expected: str, example: str) -> RequestError:
    """A value of another system that means nothing."""
    return RequestError(where, wrong, expected=expected, fix="correct it", example=example)
