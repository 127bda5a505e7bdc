"""Where kinds that nobody told us of keep their pod templates: a list that an operator configures.

    PyTorchJob: [spec.pytorchReplicaSpecs.*.template]
    Job.batch.volcano.sh: [spec.tasks.*.template]

A key is a kind, or a kind with its API group where another group has the same kind. ``*`` stands
for each member of a list or map. The list is added to the kinds that are known (``workload``).

The API server has to be told of these kinds as well, by rules of their API group and plural
(``registration.template_rules``; the chart's ``webhook.templates``). Objects of listed kinds are
sent at CREATE and UPDATE, in all versions, whatever they hold; ``failurePolicy`` is Ignore there,
since their pods are reviewed in any case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sharing.errors import InputError, shown
from webhook.workload import TEMPLATE_PATHS, TemplatePath

_KIND: Final = re.compile(
    r"[A-Z][A-Za-z0-9]{0,62}(\.[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?)?", re.ASCII
)
_PATH: Final = re.compile(r"([A-Za-z][A-Za-z0-9]{0,62}|\*)(\.([A-Za-z][A-Za-z0-9]{0,62}|\*)){0,9}")
_MOST_STARS: Final = 2
_MOST: Final = 16
_EXAMPLE: Final = "PyTorchJob: [spec.pytorchReplicaSpecs.*.template]"


def parse_template_paths(value: object) -> Mapping[str, tuple[TemplatePath, ...]]:
    """All paths: those that are known, and those that a file adds or says otherwise.

    Args:
        value: What a file holds: lists of dotted paths by kind.

    Raises:
        InputError: It holds something else.
    """
    if not isinstance(value, Mapping):
        raise _error("", f"{shown(value)} is no mapping", "lists of paths by kind")
    paths = dict(TEMPLATE_PATHS)
    for kind, listed in value.items():
        if not isinstance(kind, str) or not _KIND.fullmatch(kind):
            raise _error("", f"{shown(kind)} is no kind", "a kind such as RayJob or RayJob.ray.io")
        if not isinstance(listed, list) or not 0 < len(listed) <= _MOST:
            raise _error(kind, f"{shown(listed)} is no list", f"a list of 1 to {_MOST} paths")
        paths[kind] = tuple(_path(kind, text) for text in listed)
    return paths


def _path(kind: str, text: object) -> TemplatePath:
    if not isinstance(text, str) or not _PATH.fullmatch(text) or text.count("*") > _MOST_STARS:
        raise _error(
            kind,
            f"{shown(text)} is no path",
            f"up to ten names joined by dots, at most {_MOST_STARS} of them '*'",
        )
    return tuple(text.split("."))


def _error(kind: str, wrong: str, expected: str) -> InputError:
    subject = f"template paths of {kind}" if kind else "template paths"
    return InputError(subject, wrong, expected=expected, fix="correct it", example=_EXAMPLE)
