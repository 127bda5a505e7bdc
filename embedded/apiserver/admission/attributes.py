"""What admission knows about a request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from embedded.apiserver.calls import Call, Options
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json


class Operation(StrEnum):
    """What is done to the object. A patch is an UPDATE, or a CREATE where it creates."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


@dataclass(slots=True, kw_only=True)
class Attributes:
    """One request on its way through admission.

    Attributes:
        kind: The resource of the request.
        subresource: Empty for the resource itself.
        name: Empty at a creation with generateName.
        obj: The object after defaulting and what came before; None on DELETE.
        old: The stored object; None on CREATE.
        body_kind: (group, version, kind) of ``obj`` where a subresource takes another kind.
        type_name: Row of the type table of ``obj`` where it is not that of ``kind``.
    """

    operation: Operation
    kind: ResourceKind
    namespace: str
    name: str
    call: Call
    options: Options
    subresource: str = ""
    obj: Json | None = None
    old: Json | None = None
    body_kind: tuple[str, str, str] | None = None
    type_name: str = ""

    @property
    def object_kind(self) -> tuple[str, str, str]:
        """(group, version, kind) of the object."""
        return self.body_kind or (self.kind.group, self.kind.version, self.kind.kind)


class Admission(Protocol):
    """The admission chain as the registry uses it."""

    async def mutate(self, attributes: Attributes) -> None:
        """Let plug-ins and webhooks change ``attributes.obj``; raise StatusError to refuse."""

    async def validate(self, attributes: Attributes) -> None:
        """Let policies and webhooks look at the final object; raise StatusError to refuse."""

    def reserve(self, attributes: Attributes) -> None:
        """Last checks, at once before the write and without awaiting: quota."""
