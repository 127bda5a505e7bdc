"""RuntimeClass: what a pod's runtime class costs and asks of a node is written into the pod.

Source: ``plugin/pkg/admission/runtimeclass/admission.go`` and ``pkg/util/tolerations``. It runs
before the webhooks and refuses again after them, so that no webhook can set an overhead either.
"""

from __future__ import annotations

from embedded.apiserver.admission.attributes import Attributes, Operation
from embedded.apiserver.objects import Json, entries, section
from embedded.apiserver.quantities import amount
from embedded.apiserver.status import StatusError, forbidden
from embedded.apiserver.store import Store

_KIND = "runtimeclasses.node.k8s.io"


def apply_class(attributes: Attributes, store: Store) -> None:
    """Write overhead, node selector and tolerations of the class; the same when done twice.

    Raises:
        StatusError: 403, there is no such class or the pod contradicts it.
    """
    found = _found(attributes, store)
    if found is None:
        return
    spec = section(attributes.obj, "spec")
    overhead = section(found, "overhead", "podFixed")
    if found.get("overhead") is not None:
        _check_same(attributes, spec, overhead)
        spec["overhead"] = dict(overhead)
    selector = section(found, "scheduling", "nodeSelector")
    own = section(spec, "nodeSelector")
    for key, value in sorted(selector.items()):
        if own.get(key, value) != value:
            raise _refused(
                attributes,
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {own[key]}",
            )
    if selector:
        spec["nodeSelector"] = {**own, **selector}
    if wanted := entries(found, "scheduling", "tolerations"):
        spec["tolerations"] = merged(entries(spec, "tolerations"), wanted)


def check_overhead(attributes: Attributes, store: Store) -> None:
    """An overhead stands in a pod only as its class has it.

    Raises:
        StatusError: 403.
    """
    if not _concerns(attributes):
        return
    found = _found(attributes, store)
    spec = section(attributes.obj, "spec")
    if found is not None and found.get("overhead") is not None:
        _check_same(attributes, spec, section(found, "overhead", "podFixed"))
    elif spec.get("overhead") is not None:
        raise _refused(
            attributes,
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        )


def merged(first: list[Json], second: list[Json]) -> list[Json]:
    """All tolerations but those that another one covers, in order; of equals the first."""
    together = first + second
    kept: list[Json] = []
    for index, each in enumerate(together):
        later = [other for other in together[index + 1 :] if other != each]
        if not any(_covers(other, each) for other in [*kept, *later]):
            kept.append(each)
    return kept


def _covers(wide: Json, narrow: Json) -> bool:
    if wide == narrow:
        return True
    exists = wide.get("operator") == "Exists"
    if narrow.get("key") != wide.get("key") and (wide.get("key") or not exists):
        return False
    if wide.get("effect") and narrow.get("effect") != wide["effect"]:
        return False
    if wide.get("effect") == "NoExecute" and (limit := wide.get("tolerationSeconds")) is not None:
        seconds = narrow.get("tolerationSeconds")
        if seconds is None or seconds > limit:
            return False
    return exists or (
        narrow.get("operator") == "Equal" and narrow.get("value") == wide.get("value")
    )


def _concerns(attributes: Attributes) -> bool:
    return (
        attributes.kind.qualified == "pods"
        and not attributes.subresource
        and attributes.operation is Operation.CREATE
        and attributes.obj is not None
    )


def _found(attributes: Attributes, store: Store) -> Json | None:
    name = section(attributes.obj, "spec").get("runtimeClassName")
    if not _concerns(attributes) or name is None:
        return None
    if not name:
        raise StatusError(500, "", "resource name may not be empty")
    found = store.get(_KIND, "", str(name))
    if found is None:
        raise _refused(attributes, f'pod rejected: RuntimeClass "{name}" not found')
    return found


def _check_same(attributes: Attributes, spec: Json, overhead: Json) -> None:
    own = spec.get("overhead")
    if own is not None and _amounts(own) != _amounts(overhead):
        raise _refused(
            attributes, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        )


def _amounts(quantities: Json) -> dict[str, object]:
    return {name: amount(str(value)) for name, value in quantities.items()}


def _refused(attributes: Attributes, why: str) -> StatusError:
    return forbidden(attributes.kind, attributes.name, why)
