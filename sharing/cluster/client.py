"""One client of the Kubernetes API for all programs: verbs over HTTP, raw objects.

Objects are plain ``dict``s as the server sent them; nothing is decoded into models, so
that no unknown field is ever lost. Every failure is an ``ApiError`` that names what was
asked (see ``errors``); how requests travel is in ``transport``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp

from sharing.cluster import credentials
from sharing.cluster.kind import PODS, Kind
from sharing.cluster.transport import CONNECT_TIMEOUT_S, Body, Transport, Warnings
from sharing.cluster.watching import WatchEvent, read_events

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

WATCH_LIFE_S: Final = 300
"""How long one watch request lasts before the server ends it."""
PAGE_SIZE: Final = 500


class PatchType(StrEnum):
    """The patch formats; the value is the content type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Client(Transport):
    """A connection to one API server; an async context manager.

    Args:
        source: Where credentials come from, see ``credentials.find``.
        user_agent: Who we are in the server's audit log, such as ``gpu-sharing-agent``.
        timeout_s: Limit of one request, watches excepted.

    Every method raises an ``ApiError`` when the server refuses or does not answer, and
    InputError when the kubeconfig cannot be used.
    """

    @classmethod
    def from_kubeconfig(
        cls, path: Path | None = None, *, context: str = "", user_agent: str = "gpu-sharing"
    ) -> Self:
        """A client with credentials as every Kubernetes program looks for them.

        Raises:
            InputError: If there is no kubeconfig and no service account.
        """
        return cls(credentials.find(path, context=context), user_agent=user_agent)

    # -- reading

    async def get(
        self, kind: Kind, name: str, *, namespace: str = "", subresource: str = ""
    ) -> dict[str, Any]:
        """One object."""
        path = kind.path(namespace=namespace, name=name, subresource=subresource)
        return await self.request("GET", path, subject=_subject("get", kind, namespace, name))

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> dict[str, Any]:
        """All objects of a kind as one List, ``items`` in the server's order."""
        whole: dict[str, Any] | None = None
        async for page in self.pages(
            kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector
        ):
            if whole is None:
                whole = page
            else:
                whole["items"].extend(page["items"])
                whole["metadata"] = page.get("metadata", {})
        return whole or {"items": []}

    async def pages(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The pages of a list, ``PAGE_SIZE`` objects each, all of one resource version.

        ``items`` is always a list, and each item carries apiVersion and kind, which the
        server leaves out inside lists.
        """
        query = _selectors(label_selector, field_selector) | {"limit": str(PAGE_SIZE)}
        subject = _subject("list", kind, namespace)
        while True:
            page = await self.request(
                "GET", kind.path(namespace=namespace), query=query, subject=subject
            )
            items = page.get("items") or []
            page["items"] = items
            for item in items:
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query["continue"] = token

    async def watch(
        self,
        kind: Kind,
        *,
        resource_version: str = "",
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes since a resource version, bookmarks included, until the server ends it.

        The first thing yielded is an event of type OPENED without an object, once the
        server has accepted the watch.

        Raises:
            GoneError: If the resource version is too old; list again.
            ApiError: As all verbs; also for an error inside the stream.
        """
        query = _selectors(label_selector, field_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_LIFE_S),
        }
        if resource_version:
            query["resourceVersion"] = resource_version
        subject = _subject("watch", kind, namespace)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=WATCH_LIFE_S + self._timeout_s
        )
        path = kind.path(namespace=namespace)
        response = await self._send("GET", path, subject, query=query, timeout=timeout)
        try:
            async for event in read_events(response, subject):
                yield event
        finally:
            # Not released: what is left of the stream is of no use to anyone.
            response.close()

    # -- writing

    async def create(
        self,
        kind: Kind,
        item: Mapping[str, Any],
        *,
        namespace: str = "",
        dry_run: bool = False,
        warnings: Warnings | None = None,
    ) -> dict[str, Any]:
        """Create an object, in the namespace given or the one that its metadata names.

        Args:
            kind: Its kind.
            item: The object.
            namespace: Wins over the object's own.
            dry_run: Go through admission and validation, but store nothing.
            warnings: Takes the sentences that the server wants a person to see.
        """
        namespace = namespace or _namespace_of(kind, item)
        subject = _subject("create", kind, namespace, _name_of(item))
        path = kind.path(namespace=namespace)
        return await self.request(
            "POST", path, subject=subject, body=item, query=_dry_run(dry_run), warnings=warnings
        )

    async def replace(
        self,
        kind: Kind,
        item: Mapping[str, Any],
        *,
        subresource: str = "",
        warnings: Warnings | None = None,
    ) -> dict[str, Any]:
        """Write a whole object back; its resourceVersion, if set, must be the current one.

        Raises:
            ConflictError: If somebody else wrote it meanwhile.
        """
        namespace, name = _namespace_of(kind, item), _name_of(item)
        path = kind.path(namespace=namespace, name=name, subresource=subresource)
        subject = _subject("replace", kind, namespace, name)
        return await self.request("PUT", path, subject=subject, body=item, warnings=warnings)

    async def patch(  # noqa: PLR0913 - one parameter for each thing the API lets us say
        self,
        kind: Kind,
        name: str,
        patch: Body,
        *,
        namespace: str = "",
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
        warnings: Warnings | None = None,
    ) -> dict[str, Any]:
        """Change parts of an object."""
        path = kind.path(namespace=namespace, name=name, subresource=subresource)
        subject = _subject("patch", kind, namespace, name)
        return await self.request(
            "PATCH",
            path,
            subject=subject,
            body=patch,
            query=query,
            content_type=patch_type,
            warnings=warnings,
        )

    async def apply(
        self,
        kind: Kind,
        item: Mapping[str, Any],
        *,
        field_manager: str,
        force: bool = True,
        subresource: str = "",
    ) -> dict[str, Any]:
        """Server-side apply: create it, or own exactly the fields that ``item`` names."""
        return await self.patch(
            kind,
            _name_of(item),
            {"apiVersion": kind.api_version, "kind": kind.kind, **item},
            namespace=_namespace_of(kind, item),
            patch_type=PatchType.APPLY,
            subresource=subresource,
            query={"fieldManager": field_manager, "force": "true" if force else "false"},
        )

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = "",
        grace_s: int | None = None,
        uid: str = "",
        propagation: str = "",
    ) -> dict[str, Any]:
        """Delete an object.

        Args:
            kind: Its kind.
            name: Its name.
            namespace: Its namespace.
            grace_s: Seconds a pod gets to end; None for the pod's own.
            uid: Delete only the object with this uid.
            propagation: ``Background``, ``Foreground`` or ``Orphan``; empty for the default.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid:
            options["preconditions"] = {"uid": uid}
        if propagation:
            options["propagationPolicy"] = propagation
        path = kind.path(namespace=namespace, name=name)
        subject = _subject("delete", kind, namespace, name)
        return await self.request("DELETE", path, subject=subject, body=options)

    async def bind(self, name: str, *, namespace: str, node: str, uid: str = "") -> dict[str, Any]:
        """Assign a pod to a node, as a scheduler does."""
        metadata = {"name": name, "namespace": namespace} | ({"uid": uid} if uid else {})
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = PODS.path(namespace=namespace, name=name, subresource="binding")
        subject = f"bind {namespace}/{name} to {node}"
        return await self.request("POST", path, subject=subject, body=binding)

    async def evict(
        self, name: str, *, namespace: str, grace_s: int | None = None, uid: str = ""
    ) -> dict[str, Any]:
        """Ask for a pod to be deleted, disruption budgets respected.

        Raises:
            TooManyRequestsError: If a disruption budget does not allow it now.
        """
        options: dict[str, Any] = {}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid:
            options["preconditions"] = {"uid": uid}
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        path = PODS.path(namespace=namespace, name=name, subresource="eviction")
        subject = f"evict {namespace}/{name}"
        return await self.request("POST", path, subject=subject, body=eviction, patient=False)


def _subject(verb: str, kind: Kind, namespace: str = "", name: str = "") -> str:
    where = f"{namespace}/{name}" if namespace and name else namespace or name
    return f"{verb} {kind} {where}".rstrip()


def _name_of(item: Mapping[str, Any]) -> str:
    return str((item.get("metadata") or {}).get("name") or "")


def _namespace_of(kind: Kind, item: Mapping[str, Any]) -> str:
    if not kind.namespaced:
        return ""
    return str((item.get("metadata") or {}).get("namespace") or "")


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    chosen = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in chosen.items() if value}


def _dry_run(dry_run: bool) -> dict[str, str]:  # noqa: FBT001 - named for what it is
    return {"dryRun": "All"} if dry_run else {}
