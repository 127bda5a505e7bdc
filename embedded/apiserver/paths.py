"""Takes an API path apart (pure); the rules of apiserver's RequestInfo."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePath:
    """What a path of the resource API names."""

    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse(path: str) -> ResourcePath | None:
    """The resource that a path names; nothing where it names none (discovery, health, …).

    Args:
        path: The raw path, not yet unquoted: a name may not smuggle a slash in.
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if any("/" in part or not part for part in parts):
        return None
    if parts[0] == "api" and len(parts) > 2:  # noqa: PLR2004 - api, version, resource
        return _resource("", parts[1], parts[2:])
    if parts[0] == "apis" and len(parts) > 3:  # noqa: PLR2004 - apis, group, version, resource
        return _resource(parts[1], parts[2], parts[3:])
    return None


def _resource(group: str, version: str, rest: list[str]) -> ResourcePath | None:
    namespace = ""
    # namespaces/NAME and namespaces/NAME/status are about the namespace itself.
    if (
        rest[0] == "namespaces"
        and len(rest) > 2  # noqa: PLR2004 - namespaces, NAME, more
        and (group or rest[2] not in {"status", "finalize"})
    ):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:  # noqa: PLR2004 - resource, name, subresource
        return None
    return ResourcePath(
        group=group,
        version=version,
        resource=rest[0],
        namespace=namespace,
        name=rest[1] if len(rest) > 1 else "",
        subresource=rest[2] if len(rest) > 2 else "",  # noqa: PLR2004 - as above
    )
