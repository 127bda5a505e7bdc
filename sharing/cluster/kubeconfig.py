"""Reads kubeconfig files strictly, so that a mistake in one ends in one clear sentence.

The Kubernetes client library loads credentials (see ``credentials``) but answers a
malformed file with whatever exception comes up. So the shape is checked here first:
files are found and merged by kubectl's rules (the first file that names an entry wins,
paths are relative to the file that holds them).
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from sharing.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LISTS: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}
_PATHS: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_DATA: Final = ("certificate-authority-data", "client-certificate-data", "client-key-data")
_NOBODY: Final = "(nobody)"
_TEXTS: Final = ("server", "tls-server-name", "proxy-url", "token", "username", "password")


def files(path: Path | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The files that make up the kubeconfig, first wins.

    An explicit path stands alone; else ``KUBECONFIG`` (a path list, missing files are
    skipped as kubectl does), else ``~/.kube/config`` if it is there.

    Raises:
        InputError: If the explicit file, or every file of ``KUBECONFIG``, is missing.
    """
    if path is not None:
        if not path.is_file():
            raise InputError(f"kubeconfig {path}", "there is no such file")
        return (path,)
    listed = [
        Path(part).expanduser() for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part
    ]
    if listed:
        found = tuple(entry for entry in listed if entry.is_file())
        if not found:
            raise InputError(
                f"KUBECONFIG={environ['KUBECONFIG']}",
                "none of these files exists",
                fix="point KUBECONFIG at a kubeconfig file, or unset it",
            )
        return found
    home = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    return (home,) if home.is_file() else ()


def read(paths: Sequence[Path], *, context: str = "") -> dict[str, Any]:
    """One merged, checked kubeconfig with one usable context.

    Args:
        paths: The files, first wins.
        context: The context to use; empty for the files' ``current-context``.

    Returns:
        A kubeconfig whose ``current-context`` is the one to use, with absolute paths.

    Raises:
        InputError: Names the file and the field that is wrong.
    """
    merged: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": context}
    for name in _LISTS:
        merged[name] = []
    for path in paths:
        document = _document(path)
        merged["current-context"] = merged["current-context"] or _text(
            document, "current-context", f"kubeconfig {path}"
        )
        for section, entry_key in _LISTS.items():
            known = {entry["name"] for entry in merged[section]}
            merged[section] += [
                entry
                for entry in _entries(document, section, entry_key, path)
                if entry["name"] not in known
            ]
    _check_context(merged, f"kubeconfig {os.pathsep.join(str(path) for path in paths)}")
    return merged


def chosen(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entries of user and cluster that the current context of a checked kubeconfig names."""
    context = _named(document, "contexts", document["current-context"]) or {}
    user = _named(document, "users", context["context"]["user"]) or {}
    return user, _named(document, "clusters", context["context"]["cluster"]) or {}


def _document(path: Path) -> dict[str, Any]:
    subject = f"kubeconfig {path}"
    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise InputError(subject, f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InputError(subject, f"is not YAML: {_first_line(error)}") from error
    if not isinstance(document, dict):
        raise InputError(
            subject,
            f"holds {shown(document)}",
            expected="a mapping with clusters, contexts and users",
        )
    return document


def _entries(
    document: dict[str, Any], section: str, entry_key: str, path: Path
) -> list[dict[str, Any]]:
    subject = f"kubeconfig {path}"
    listed = document.get(section) or []
    if not isinstance(listed, list):
        raise InputError(subject, f"{section} is {shown(listed)}", expected="a list")
    entries = []
    for position, entry in enumerate(listed):
        where = f"{section}[{position}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise InputError(subject, f"{where} has no name", expected="name and " + entry_key)
        content = entry.get(entry_key) or {}
        if not isinstance(content, dict):
            raise InputError(
                subject, f"{where}.{entry_key} is {shown(content)}", expected="a mapping"
            )
        entries.append(
            {"name": entry["name"], entry_key: _checked(content, path, f"{where}.{entry_key}")}
        )
    return entries


def _checked(content: dict[str, Any], path: Path, where: str) -> dict[str, Any]:
    """The entry with absolute paths, its fields of the right types."""
    subject = f"kubeconfig {path}"
    checked = dict(content)
    for key in (*_PATHS, *_DATA, *_TEXTS):
        if key in checked and not isinstance(checked[key], str):
            # A token of digits alone is a number in YAML; its value is not shown.
            raise InputError(subject, f"{where}.{key} is not text", fix="put it into quotes")
    for key in _PATHS:
        if checked.get(key):
            target = path.parent.absolute() / Path(checked[key]).expanduser()
            if not target.is_file():
                raise InputError(subject, f"{where}.{key}: there is no file {target}")
            checked[key] = str(target)
    for key in _DATA:
        try:
            base64.b64decode(checked.get(key, ""), validate=False)
        except (binascii.Error, ValueError) as error:
            raise InputError(subject, f"{where}.{key} is not base64: {error}") from error
    if "exec" in checked:
        _check_exec(checked["exec"], subject, f"{where}.exec")
    return checked


def _check_exec(plugin: object, subject: str, where: str) -> None:
    section = plugin if isinstance(plugin, dict) else {}
    args, env = section.get("args") or [], section.get("env") or []
    if not (
        isinstance(section.get("command"), str)
        and isinstance(section.get("apiVersion"), str)
        and isinstance(args, list)
        and all(isinstance(arg, str) for arg in args)
        and isinstance(env, list)
        and all(isinstance(e, dict) and {"name", "value"} <= e.keys() for e in env)
    ):
        raise InputError(
            subject,
            f"{where} cannot be run",
            expected="apiVersion, command, args (texts) and env (name and value)",
        )


def _check_context(merged: dict[str, Any], subject: str) -> None:
    current = merged["current-context"]
    names = [entry["name"] for entry in merged["contexts"]]
    if not current:
        raise InputError(subject, "current-context is not set", expected=f"one of {shown(names)}")
    found = _named(merged, "contexts", current)
    if found is None:
        raise InputError(
            subject, f"there is no context {shown(current)}", expected=f"one of {shown(names)}"
        )
    context = found["context"]
    cluster = _named(merged, "clusters", context.get("cluster"))
    if cluster is None:
        raise InputError(
            subject,
            f"context {shown(current)} names cluster {shown(context.get('cluster'))}, "
            "which is not in clusters",
        )
    server = cluster["cluster"].get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise InputError(
            subject,
            f"cluster {shown(cluster['name'])} has server {shown(server)}",
            expected="an https address",
            example="https://10.0.0.1:6443",
        )
    user = context.get("user")
    if not user:
        # The library fails on a context without user; this one has no credentials.
        context["user"] = _NOBODY
        merged["users"].append({"name": _NOBODY, "user": {}})
    elif _named(merged, "users", user) is None:
        raise InputError(
            subject, f"context {shown(current)} names user {shown(user)}, which is not in users"
        )


def _named(merged: dict[str, Any], section: str, name: object) -> dict[str, Any] | None:
    for entry in merged[section]:
        if entry["name"] == name:
            found: dict[str, Any] = entry
            return found
    return None


def _text(document: dict[str, Any], key: str, subject: str) -> str:
    value = document.get(key) or ""
    if not isinstance(value, str):
        raise InputError(subject, f"{key} is {shown(value)}", expected="text")
    return value


def _first_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}: {problem}" if mark is not None else str(problem)
