"""A Secret's bytes and the state that they mean.

One Secret holds everything that the replicas share, under fixed keys:

    schema       which of these layouts it is
    tls.crt/key  the leaf that is served now, and its key
    next.crt/key the leaf that will be served once everybody trusts its authority
    ca.crt       the authorities that bundles must hold, the key of none of them
    promoted-at  when the current leaf became the current one (RFC 3339, UTC)
    retired      fingerprints of authorities dropped on purpose, newest last

All keys are always written, empty where there is nothing, so that the Secret is valid
under any type it may have been created with (a type cannot be changed, kyverno#6317).
Reading never fails: what cannot be read counts as absent and is told in `oddities`,
because the answer to a broken Secret is a new one, not a stopped program.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from certs.bundle import NOBODY, Bundle
from certs.errors import CertificateError
from certs.leaf import Leaf
from sharing.errors import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA: Final = "1"
KEY_SCHEMA: Final = "schema"
KEY_LEAF: Final = "tls.crt"
KEY_LEAF_KEY: Final = "tls.key"
KEY_NEXT: Final = "next.crt"
KEY_NEXT_KEY: Final = "next.key"
KEY_TRUSTED: Final = "ca.crt"
KEY_PROMOTED_AT: Final = "promoted-at"
KEY_RETIRED: Final = "retired"

ASK_ANNOTATION: Final = "certs.gpu.sharing/rotate"
"""Set it to anything new, such as the time, to ask for a rotation now."""
ANSWER_ANNOTATION: Final = "certs.gpu.sharing/rotated"
"""The last wish that was carried out."""

_MAX_RETIRED: Final = 16
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the replicas share.

    Attributes:
        current: The leaf that is served now.
        next: The leaf that comes after it.
        trusted: The authorities that every bundle must hold.
        promoted_at: When `current` became current.
        retired: Authorities dropped on purpose; if a bundle still holds one, it is a leftover.
        asked: A person's wish for a rotation, as it was put.
        answered: The last wish that was carried out.
        oddities: What could not be read, one sentence each; never written.
        schema_known: Whether the Secret was laid out by this version of us; never written.
    """

    current: Leaf | None = None
    next: Leaf | None = None
    trusted: Bundle = NOBODY
    promoted_at: datetime | None = None
    retired: tuple[str, ...] = ()
    asked: str = ""
    answered: str = ""
    oddities: tuple[str, ...] = ()
    schema_known: bool = True


def read_secret(secret: Mapping[str, Any] | None) -> Stored:
    """The state in a Secret as the API server sent it; None where there is no Secret."""
    if secret is None:
        return Stored(oddities=("the Secret is missing",))
    oddities: list[str] = []
    data = _decoded(secret.get("data"), oddities)
    schema = data.get(KEY_SCHEMA, b"").decode("utf-8", "replace")
    schema_known = not any(data.values()) or schema == SCHEMA
    if not schema_known:
        # What can be read is used all the same: during a rolling upgrade two versions see
        # one Secret, and recreating it would set them against each other.
        oddities.append(f"{KEY_SCHEMA} is {shown(schema)} where {SCHEMA!r} is known")
    metadata = secret.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return Stored(
        current=_leaf(data, KEY_LEAF, KEY_LEAF_KEY, oddities),
        next=_leaf(data, KEY_NEXT, KEY_NEXT_KEY, oddities),
        trusted=_trusted(data, oddities),
        promoted_at=_moment(data, oddities),
        retired=_retired(data),
        asked=_annotation(annotations, ASK_ANNOTATION),
        answered=_annotation(annotations, ANSWER_ANNOTATION),
        oddities=tuple(oddities),
        schema_known=schema_known,
    )


def write_secret(stored: Stored, secret: Mapping[str, Any]) -> dict[str, Any]:
    """The Secret that holds this state, everything else in it (labels, owners) as it was."""
    current, following = stored.current, stored.next
    data = {
        KEY_SCHEMA: SCHEMA.encode(),
        KEY_LEAF: current.certificate_pem if current else b"",
        KEY_LEAF_KEY: current.key_pem if current else b"",
        KEY_NEXT: following.certificate_pem if following else b"",
        KEY_NEXT_KEY: following.key_pem if following else b"",
        KEY_TRUSTED: stored.trusted.to_pem(),
        KEY_PROMOTED_AT: stored.promoted_at.isoformat().encode() if stored.promoted_at else b"",
        KEY_RETIRED: "\n".join(stored.retired[-_MAX_RETIRED:]).encode(),
    }
    metadata = dict(secret.get("metadata") or {})
    wishes = {ASK_ANNOTATION: stored.asked, ANSWER_ANNOTATION: stored.answered}
    annotations = dict(metadata.get("annotations") or {})
    annotations |= {key: wish for key, wish in wishes.items() if wish}
    if annotations:
        metadata["annotations"] = annotations
    encoded = {key: base64.b64encode(value).decode("ascii") for key, value in data.items()}
    rest = {key: value for key, value in secret.items() if key not in {"data", "stringData"}}
    return {**rest, "metadata": metadata, "data": encoded}


def _decoded(data: object, oddities: list[str]) -> dict[str, bytes]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        oddities.append("data is no map")
        return {}
    decoded: dict[str, bytes] = {}
    for key, value in sorted(data.items(), key=lambda item: str(item[0])):
        try:
            decoded[str(key)] = base64.b64decode(value, validate=True)
        except (TypeError, ValueError, binascii.Error):
            oddities.append(f"{shown(key)} is not base64")
    return decoded


def _leaf(
    data: Mapping[str, bytes], key: str, private_key: str, oddities: list[str]
) -> Leaf | None:
    certificate_pem, key_pem = data.get(key, b""), data.get(private_key, b"")
    if not certificate_pem and not key_pem:
        return None
    try:
        return Leaf.from_pem(certificate_pem, key_pem, subject=key, key_subject=private_key)
    except CertificateError as error:
        oddities.append(str(error))
        return None


def _trusted(data: Mapping[str, bytes], oddities: list[str]) -> Bundle:
    pem = data.get(KEY_TRUSTED, b"")
    if not pem:
        return NOBODY
    try:
        return Bundle.parse(pem, subject=KEY_TRUSTED)
    except CertificateError as error:
        oddities.append(str(error))
        return Bundle.salvage(pem)


def _moment(data: Mapping[str, bytes], oddities: list[str]) -> datetime | None:
    text = data.get(KEY_PROMOTED_AT, b"").decode("utf-8", "replace")
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        oddities.append(f"{KEY_PROMOTED_AT} is no time: {shown(text)}")
        return None
    try:
        # Without a zone it is not ours; UTC is the only one we write.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        oddities.append(f"{KEY_PROMOTED_AT} is no time: {shown(text)}")
        return None


def _retired(data: Mapping[str, bytes]) -> tuple[str, ...]:
    lines = data.get(KEY_RETIRED, b"").decode("utf-8", "replace").split()
    return tuple(line for line in lines if _FINGERPRINT.fullmatch(line))[-_MAX_RETIRED:]


def _annotation(annotations: object, key: str) -> str:
    value = annotations.get(key) if isinstance(annotations, dict) else None
    return value if isinstance(value, str) else ""
