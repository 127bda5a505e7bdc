"""The verdicts of ``gpu-sharing admit``, and each of them as values that every form prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from cli.admitscene import is_review
from sharing.documents import KubeObject
from sharing.errors import InputError
from webhook.answer import answer_review
from webhook.preview import Preview, preview
from webhook.review import parse_review
from webhook.snapshot import Snapshot
from webhook.verdict import VerdictKind

EXIT_DENIED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything that there is to print."""

    previews: tuple[Preview, ...]
    passed_over: Mapping[str, int]
    """Objects that make no pods, by kind."""
    answers: tuple[dict[str, Any], ...]
    """Answers to AdmissionReviews."""
    ungoverned: tuple[str, ...]
    """Namespaces of these objects that have no policy."""

    @property
    def denied(self) -> tuple[Preview, ...]:
        """What would be refused."""
        return tuple(one for one in self.previews if one.kind is VerdictKind.DENY)

    @property
    def exit_code(self) -> int:
        """3 if anything was denied."""
        refused = [a for a in self.answers if not a["response"]["allowed"]]
        return EXIT_DENIED if self.denied or refused else 0


def decide(objects: Iterable[KubeObject], namespace: str, snapshot: Snapshot) -> Result:
    """The verdicts on all objects.

    Args:
        objects: What is neither profile nor namespace.
        namespace: For objects that name none.
        snapshot: Policies and nodes.

    Raises:
        InputError: An object is malformed, or reviews stand beside manifests.
    """
    previews: list[Preview] = []
    answers: list[dict[str, Any]] = []
    passed_over: Counter[str] = Counter()
    for found in objects:
        if is_review(found):
            answers.append(_answer(found, snapshot))
        elif (decided := preview(found, found.namespace or namespace, snapshot)) is None:
            passed_over[found.kind] += 1
        else:
            previews.append(decided)
        if answers and (previews or passed_over):
            raise InputError(
                found.where,
                "AdmissionReviews and manifests stand side by side",
                expected="the one or the other",
                fix="use one call for each",
            )
    namespaces = sorted({decided.namespace for decided in previews})
    return Result(
        previews=tuple(previews),
        passed_over=passed_over,
        answers=tuple(answers),
        ungoverned=tuple(n for n in namespaces if snapshot.policies.profile_for(n).untouched),
    )


def _answer(found: KubeObject, snapshot: Snapshot) -> dict[str, Any]:
    try:
        review = parse_review(found.value)
    except InputError as error:
        raise error.about(found.where) from error
    answered = answer_review(review, snapshot)
    if answered.fault is not None:
        raise answered.fault
    answer: dict[str, Any] = orjson.loads(answered.answer.body)
    return answer


def title(decided: Preview) -> str:
    """The object as messages call it: ``Deployment team-a/web``."""
    return f"{decided.found.kind} {decided.namespace}/{decided.found.name or '(no name)'}"


def operations(decided: Preview) -> list[dict[str, Any]]:
    """The patch as JSON."""
    return [operation.to_json() for operation in decided.operations]


def patched(decided: Preview) -> dict[str, Any]:
    """The object as it would be, made by a JSON Patch library from the original and the patch."""
    if not decided.operations:
        return decided.found.value
    import jsonpatch

    changed: dict[str, Any] = jsonpatch.apply_patch(decided.found.value, operations(decided))
    return changed


def entry(decided: Preview) -> dict[str, Any]:
    """One member of the JSON form."""
    denied = decided.kind is VerdictKind.DENY
    return {
        "kind": decided.found.kind,
        "namespace": decided.namespace,
        "name": decided.found.name,
        "verdict": decided.kind.value,
        "code": decided.code,
        "message": decided.message,
        "warnings": list(decided.warnings),
        "grants": [grant.to_json() for grant in decided.grants],
        "patch": operations(decided),
        "object": None if denied else patched(decided),
    }
