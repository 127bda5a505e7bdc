"""Mutating and validating webhooks: who is called, in which order, and what follows.

Rules: k8s.io/apiserver ``plugin/webhook/{mutating,validating}/dispatcher.go``.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import orjson
import structlog

from embedded.apiserver.admission.attributes import Attributes
from embedded.apiserver.admission.callout import (
    CalloutClient,
    CalloutError,
    ServiceResolver,
    target_of,
)
from embedded.apiserver.admission.matching import (
    Match,
    conditions_say,
    is_exempt,
    matched_resource,
    namespace_takes,
    object_takes,
    webhooks_of,
)
from embedded.apiserver.admission.plugins import namespace_labels
from embedded.apiserver.admission.reviews import (
    BadReviewError,
    Verdict,
    denial,
    read_answer,
    request_fields,
    review,
)
from embedded.apiserver.calls import Call
from embedded.apiserver.codec import to_object, to_typed
from embedded.apiserver.kinds import KindTable, ResourceKind
from embedded.apiserver.objects import Json, entries
from embedded.apiserver.patches import apply_json_patch
from embedded.apiserver.status import StatusError, bad_request, forbidden, internal
from embedded.apiserver.store import Store

_log = structlog.get_logger()

_MUTATING = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
_VALIDATING = "validatingwebhookconfigurations.admissionregistration.k8s.io"

HookKey = tuple[str, str, int]  # configuration, webhook, index of the name in it


@dataclass(slots=True)
class Reinvocation:
    """What a second pass has to know of the first (webhookReinvokeContext).

    Attributes:
        second: Whether this is the second pass.
        wanted: Whether some webhook changed the object.
        called: Reinvocable webhooks that were called since the last change.
        again: Webhooks to call in the second pass.
        last: The object as the first pass left it.
    """

    second: bool = False
    wanted: bool = False
    called: set[HookKey] = field(default_factory=set)
    again: set[HookKey] = field(default_factory=set)
    last: Json | None = None

    def object_changed(self) -> None:
        """Everything that was called before has not seen this object."""
        self.again |= self.called
        self.called = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A webhook that takes a request."""

    configuration: str
    spec: Json
    matched: ResourceKind | None
    key: HookKey

    @property
    def name(self) -> str:
        """The webhook's name."""
        return str(self.spec.get("name"))


class Webhooks:
    """The webhooks of a cluster.

    Args:
        store: Where configurations and namespaces are read.
        kinds: The resources that there are.
        client: Calls.
        resolve: Finds the backend of a service.
    """

    def __init__(
        self, store: Store, kinds: KindTable, client: CalloutClient, resolve: ServiceResolver
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._client = client
        self._resolve = resolve

    async def mutate(self, attributes: Attributes, state: Reinvocation) -> None:
        """Call the mutating webhooks one after another.

        Raises:
            StatusError: One refused, or failed under failurePolicy Fail.
        """
        if is_exempt(attributes.kind):
            return
        if state.second and attributes.obj != state.last:
            # Plug-ins changed the object between the passes.
            state.object_changed()
        for index, (configuration, spec, key) in enumerate(self._listed(_MUTATING)):
            hook = self._hook(configuration, spec, key, attributes)
            if hook is None or (state.second and key not in state.again):
                continue
            if await self._mutate_one(hook, attributes, int(state.second), index):
                state.object_changed()
                state.wanted = True
            if spec.get("reinvocationPolicy") == "IfNeeded":
                state.called.add(key)
        state.last = attributes.obj

    async def _mutate_one(
        self, hook: Hook, attributes: Attributes, round_: int, index: int
    ) -> bool:
        where = f"round_{round_}_index_{index}"
        verdict = await self._ask(hook, attributes, "mutating", where)
        if verdict is None:
            return False
        changed = False
        if verdict.patch:
            changed = _patched(hook, attributes, verdict)
        report = {"configuration": hook.configuration, "webhook": hook.name}
        record = attributes.call.annotations
        record[f"mutation.webhook.admission.k8s.io/{where}"] = _text({**report, "mutated": changed})
        if changed:
            record[f"patch.webhook.admission.k8s.io/{where}"] = _text(
                {**report, "patch": list(verdict.patch), "patchType": "JSONPatch"}
            )
        return changed

    async def validate(self, attributes: Attributes) -> None:
        """Call the validating webhooks at once; the first refusal in order counts.

        Raises:
            StatusError: One refused, or failed under failurePolicy Fail.
        """
        if is_exempt(attributes.kind):
            return
        calls = []
        for index, (configuration, spec, key) in enumerate(self._listed(_VALIDATING)):
            hook = self._hook(configuration, spec, key, attributes)
            if hook is not None:
                calls.append(self._ask(hook, attributes, "validating", f"round_0_index_{index}"))
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _listed(self, resource: str) -> list[tuple[str, Json, HookKey]]:
        seen: dict[tuple[str, str], int] = {}
        listed = []
        for found, spec in webhooks_of(self._store.objects(resource)):
            configuration, name = str(found["metadata"]["name"]), str(spec.get("name"))
            count = seen.get((configuration, name), 0)
            seen[configuration, name] = count + 1
            listed.append((configuration, spec, (configuration, name, count)))
        return listed

    def _hook(
        self, configuration: str, spec: Json, key: HookKey, attributes: Attributes
    ) -> Hook | None:
        """The webhook, where it is about the request.

        Raises:
            StatusError: 403, its conditions fail under failurePolicy Fail.
        """
        versions = [kind for kind in self._kinds if kind.qualified == attributes.kind.qualified]
        policy = str(spec.get("matchPolicy") or "Equivalent")
        matched = matched_resource(entries(spec, "rules"), attributes, versions, policy)
        labels = namespace_labels(self._store, attributes.namespace)
        if (
            matched is None
            or not namespace_takes(spec.get("namespaceSelector"), attributes, labels)
            or not object_takes(spec.get("objectSelector"), attributes)
        ):
            return None
        other = matched if matched != attributes.kind else None
        if not self._conditions_call(spec, attributes, other):
            return None
        return Hook(configuration=configuration, spec=spec, matched=other, key=key)

    def _conditions_call(
        self, spec: Json, attributes: Attributes, matched: ResourceKind | None
    ) -> bool:
        conditions = entries(spec, "matchConditions")
        if not conditions:
            return True
        variables = {
            "object": attributes.obj,
            "oldObject": attributes.old,
            "request": request_fields(attributes, matched),
        }
        said, problem = conditions_say(conditions, variables)
        if said is Match.FAILED and spec.get("failurePolicy") != "Ignore":
            raise forbidden(attributes.kind, attributes.name, problem)
        return said is Match.CALL

    async def _ask(
        self, hook: Hook, attributes: Attributes, phase: str, where: str
    ) -> Verdict | None:
        """A good verdict; None where a failure is ignored.

        Raises:
            StatusError: A refusal, or a failure under failurePolicy Fail.
        """
        call = attributes.call
        if call.dry_run and hook.spec.get("sideEffects") not in {"None", "NoneOnDryRun"}:
            raise bad_request(f'admission webhook "{hook.name}" does not support dry run')
        try:
            verdict = await self._call(hook, attributes, mutating=phase == "mutating")
        except (CalloutError, BadReviewError) as error:
            if isinstance(error, BadReviewError):
                reason = f"received invalid webhook response: {error}"
            else:
                reason = f"failed to call webhook: {error}"
            if hook.spec.get("failurePolicy") != "Ignore":
                raise internal(f'failed calling webhook "{hook.name}": {reason}') from error
            _log.warning("webhook failed open", webhook=hook.name, reason=reason)
            call.annotations[f"failed-open.{phase}.webhook.admission.k8s.io/{where}"] = hook.name
            return None
        for key, value in verdict.annotations.items():
            call.annotations[f"{hook.name}/{key}"] = value
        for text in verdict.warnings:
            call.warn(text)
        if not verdict.allowed:
            raise denial(hook.name, verdict.status)
        return verdict

    async def _call(self, hook: Hook, attributes: Attributes, *, mutating: bool) -> Verdict:
        uid = str(uuid.uuid4())
        target = target_of(hook.spec.get("clientConfig") or {}, self._resolve)
        body = orjson.dumps(review(attributes, uid, hook.matched))
        left_s = attributes.call.deadline_s - time.monotonic()
        timeout_s = min(float(hook.spec.get("timeoutSeconds") or 10), left_s)
        if timeout_s <= 0:
            raise CalloutError(f'Post "{target.shown}": context deadline exceeded')
        raw = await self._client.post(target, body, timeout_s)
        return read_answer(raw, uid, mutating=mutating)


def _patched(hook: Hook, attributes: Attributes, verdict: Verdict) -> bool:
    """Apply a webhook's patch; whether it changed anything.

    Raises:
        StatusError: 500: there is no object, or the patch does not fit it. These are not
            calling errors, so failurePolicy does not matter.
    """
    before = attributes.obj
    if before is None:
        raise internal(
            f'admission webhook "{hook.name}" attempted to modify the object, which is not '
            "supported for this operation"
        )
    shown = before if hook.matched is None else {**before, "apiVersion": hook.matched.api_version}
    try:
        patched: Any = apply_json_patch(shown, list(verdict.patch))
        decoded = _decoded(patched, attributes, hook.matched)
    except StatusError as error:
        raise internal(error.message) from error
    attributes.obj = decoded
    return decoded != before


def _decoded(patched: Any, attributes: Attributes, matched: ResourceKind | None) -> Json:
    """Into a new object, defaulted again; fields that the kind does not have fall away."""
    quiet = Call(user=attributes.call.user, field_validation="Ignore")
    if attributes.body_kind is not None:
        obj = to_typed(patched, attributes.type_name, attributes.body_kind[2], quiet)
    else:
        obj = to_object(patched, matched or attributes.kind, quiet)
        obj["apiVersion"] = attributes.kind.api_version
    return obj


def _text(value: Json) -> str:
    return orjson.dumps(value).decode()
