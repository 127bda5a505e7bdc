"""Rules about ``metadata``, the same for every kind (pure but for uid, clock and suffix)."""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Mapping
from typing import Any, Final

from embedded.apiserver.objects import Json, meta, own_meta, timestamp
from embedded.apiserver.status import (
    Cause,
    field_forbidden,
    invalid_value,
    required,
)

_SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # apimachinery util/rand
_SUFFIX_CHARACTERS: Final = 5
_MAX_GENERATED_BASE: Final = 58
_MAX_SUBDOMAIN: Final = 253
_MAX_LABEL: Final = 63
_MAX_ANNOTATION_BYTES: Final = 256 * 1024

_LABEL_FORM: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL_FORM}(\.{_LABEL_FORM})*")
_DNS_LABEL: Final = re.compile(_LABEL_FORM)
_QUALIFIED_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

_STANDARD_FINALIZERS: Final = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
_LABELLED_KINDS: Final = frozenset({"namespaces", "services"})

SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_NAME_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def is_subdomain(text: str) -> bool:
    """RFC 1123 subdomain of at most 253 characters."""
    return len(text) <= _MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None


def is_dns_label(text: str) -> bool:
    """RFC 1123 label of at most 63 characters."""
    return len(text) <= _MAX_LABEL and _DNS_LABEL.fullmatch(text) is not None


def dns_label_causes(text: str, field: str) -> list[Cause]:
    """What is wrong with a DNS label."""
    if not text:
        return [required(field)]
    return [] if is_dns_label(text) else [invalid_value(field, text, _LABEL_TEXT)]


def qualified_name_problem(text: str) -> str:
    """Why a text is no qualified name (``[domain/]name``); empty where it is one."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_subdomain(prefix):
        return f"prefix part {SUBDOMAIN_TEXT}" if prefix else "prefix part must be non-empty"
    if not name:
        return "name part must be non-empty"
    if len(name) > _MAX_LABEL:
        return f"name part must be no more than {_MAX_LABEL} bytes"
    return "" if _QUALIFIED_NAME.fullmatch(name) else _NAME_TEXT


def forget_system_fields(obj: Json) -> None:
    """What a client may not choose at creation (WipeObjectMetaSystemFields)."""
    metadata = own_meta(obj)
    for field in (
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "uid",
        "selfLink",
    ):
        metadata.pop(field, None)


def complete_new(obj: Json) -> None:
    """Name, uid and time of birth; after mutating admission, as the registry does."""
    metadata = own_meta(obj)
    if not metadata.get("name") and metadata.get("generateName"):
        suffix = "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(_SUFFIX_CHARACTERS))
        metadata["name"] = f"{metadata['generateName'][:_MAX_GENERATED_BASE]}{suffix}"
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = timestamp()
    metadata.pop("resourceVersion", None)


def keep_system_fields(new: Json, old: Json) -> None:
    """What an update cannot change, whatever the client sends."""
    metadata, before = own_meta(new), meta(old)
    for field in (
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "namespace",
        "name",
        "selfLink",
    ):
        if field in before:
            metadata[field] = before[field]
        else:
            metadata.pop(field, None)


def causes_of(obj: Json, resource: str, *, namespaced: bool) -> list[Cause]:
    """What is wrong with the metadata of an object that is about to be stored."""
    metadata = meta(obj)
    name = str(metadata.get("name") or "")
    causes: list[Cause] = []
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    elif resource in _LABELLED_KINDS:
        causes += dns_label_causes(name, "metadata.name")
    elif not is_subdomain(name):
        causes.append(invalid_value("metadata.name", name, SUBDOMAIN_TEXT))
    base = str(metadata.get("generateName") or "")
    masked = f"{base[:-2]}a" if len(base) > 1 and base.endswith("-") else base  # maskTrailingDash
    if base and not is_subdomain(masked):
        causes.insert(0, invalid_value("metadata.generateName", base, SUBDOMAIN_TEXT))
    if not namespaced and metadata.get("namespace"):
        causes.append(field_forbidden("metadata.namespace", "not allowed on this type"))
    causes += label_causes(metadata.get("labels") or {}, "metadata.labels")
    causes += _annotation_causes(metadata.get("annotations") or {})
    causes += _finalizer_causes(metadata.get("finalizers") or [])
    controllers = [o for o in metadata.get("ownerReferences") or [] if o.get("controller")]
    if len(controllers) > 1:
        first, second = (f"{o.get('kind')}/{o.get('name')}" for o in controllers[:2])
        why = (
            "Only one reference can have Controller set to true. "
            f'Found "true" in references for {first} and {second}'
        )
        causes.append(invalid_value("metadata.ownerReferences", metadata["ownerReferences"], why))
    for index, owner in enumerate(metadata.get("ownerReferences") or []):
        causes += [
            required(f"metadata.ownerReferences[{index}].{field}", "must not be empty")
            for field in ("apiVersion", "kind", "name", "uid")
            if not owner.get(field)
        ]
    return causes


def _finalizer_causes(finalizers: list[Any]) -> list[Cause]:
    causes = []
    for index, finalizer in enumerate(map(str, finalizers)):
        if problem := qualified_name_problem(finalizer):
            causes.append(invalid_value("metadata.finalizers", finalizer, problem))
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(invalid_value(f"metadata.finalizers[{index}]", finalizer, why))
    return causes


def label_causes(labels: Mapping[str, Any], field: str) -> list[Cause]:
    """What is wrong with labels."""
    causes = []
    for key, value in labels.items():
        if problem := qualified_name_problem(key):
            causes.append(invalid_value(field, key, problem))
        if len(str(value)) > _MAX_LABEL:
            causes.append(invalid_value(field, value, f"must be no more than {_MAX_LABEL} bytes"))
        elif not _LABEL_VALUE.fullmatch(str(value)):
            causes.append(invalid_value(field, value, _VALUE_TEXT))
    return causes


def _annotation_causes(annotations: Mapping[str, Any]) -> list[Cause]:
    causes = [
        invalid_value("metadata.annotations", key, problem)
        for key in annotations
        if (problem := qualified_name_problem(key.lower()))
    ]
    total = sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items())
    if total > _MAX_ANNOTATION_BYTES:
        causes.append(
            Cause(
                field="metadata.annotations",
                reason="FieldValueTooLong",
                message=f"Too long: may not be more than {_MAX_ANNOTATION_BYTES} bytes",
            )
        )
    return causes


def immutable_metadata_causes(new: Json, old: Json) -> list[Cause]:
    """ValidateObjectMetaUpdate: name, namespace and uid stay."""
    causes = [
        invalid_value(f"metadata.{field}", meta(new).get(field), "field is immutable")
        for field in ("name", "namespace", "uid")
        if meta(new).get(field) and meta(new)[field] != meta(old).get(field)
    ]
    known = meta(old).get("finalizers") or []
    added = [each for each in meta(new).get("finalizers") or [] if each not in known]
    if added and meta(old).get("deletionTimestamp"):
        listed = ", ".join(f'"{each}"' for each in added)
        why = (
            "no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{listed}}}"
        )
        causes.append(field_forbidden("metadata.finalizers", why))
    return causes
