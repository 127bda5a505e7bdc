"""Reports that CI systems read: JUnit's XML and SARIF.

Each object is a test case, and a result of its own; file and line are those of the object. The
same input gives the same bytes: nothing is measured or dated.

Sources: OASIS, Static Analysis Results Interchange Format (SARIF) 2.1.0; for JUnit the strictest
schema in use, that of Jenkins' xUnit plugin (junit-10.xsd). It knows no line of a test case, so
the line begins a failure's text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

import click

from cli.admitforms import json_text
from cli.admitresult import Result, title
from cli.admitscene import STANDARD_INPUT
from sharing.printable import printable
from webhook.preview import Preview
from webhook.verdict import VerdictKind

_NAME: Final = "gpu-sharing admit"
_CLUSTER: Final = "cluster"
_MALFORMED: Final = 422
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_RULES: Final = (
    ("forbidden", "error", "The namespace's policy refuses the pods."),
    ("malformed", "error", "A GPU request does not follow its grammar."),
    ("warning", "warning", "The pods are admitted, and their author should know something."),
)
_LEVELS: Final = {rule: level for rule, level, _ in _RULES}


def print_junit(result: Result) -> None:
    """Print JUnit's XML: what is denied has failed, warnings are output."""
    by_source: dict[str, list[Preview]] = {}
    for decided in result.previews:
        by_source.setdefault(decided.found.source or _CLUSTER, []).append(decided)
    root = ET.Element("testsuites", {"name": _NAME, **_counts(result.previews)})
    for source, previews in by_source.items():
        name = printable(source)
        about = {"name": name, "file": name, "skipped": "0", **_counts(previews)}
        suite = ET.SubElement(root, "testsuite", about)
        for decided in previews:
            _add_case(suite, source, decided)
    ET.indent(root)
    click.echo('<?xml version="1.0" encoding="utf-8"?>')
    click.echo(ET.tostring(root, encoding="unicode"))


def _counts(previews: Iterable[Preview]) -> dict[str, str]:
    listed = tuple(previews)
    denied = sum(one.kind is VerdictKind.DENY for one in listed)
    return {"tests": str(len(listed)), "failures": str(denied), "errors": "0", "time": "0"}


def _add_case(suite: ET.Element, source: str, decided: Preview) -> None:
    about = {"name": printable(title(decided)), "classname": printable(source), "time": "0"}
    case = ET.SubElement(suite, "testcase", about)
    if decided.kind is VerdictKind.DENY:
        sentence = printable(decided.message)
        failure = ET.SubElement(case, "failure", type=_rule(decided), message=sentence)
        line = decided.found.line
        failure.text = f"{printable(source)}:{line}: {sentence}" if line else sentence
    said = [f"{g.container}: {g.request} becomes {g.resource} x{g.count}" for g in decided.grants]
    said += [f"warning: {warning}" for warning in decided.warnings]
    if said:
        ET.SubElement(case, "system-out").text = "\n".join(map(printable, said))


def _rule(decided: Preview) -> str:
    return "malformed" if decided.code == _MALFORMED else "forbidden"


def print_sarif(result: Result) -> None:
    """Print a SARIF log: denials are errors, warnings are warnings."""
    run = {
        "tool": {"driver": _driver()},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True}],
        "results": [found for decided in result.previews for found in _results(decided)],
    }
    click.echo(json_text({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}))


def _driver() -> dict[str, Any]:
    try:
        version = metadata.version("gpu-sharing")
    except metadata.PackageNotFoundError:
        version = "0"
    return {
        "name": "gpu-sharing",
        "version": version,
        "rules": [
            {
                "id": rule,
                "shortDescription": {"text": meaning},
                "defaultConfiguration": {"level": level},
            }
            for rule, level, meaning in _RULES
        ],
    }


def _results(decided: Preview) -> Iterator[dict[str, Any]]:
    if decided.kind is VerdictKind.DENY:
        yield _result(decided, _rule(decided), decided.message)
    for warning in decided.warnings:
        yield _result(decided, "warning", f"{title(decided)}: {warning}")


def _result(decided: Preview, rule: str, sentence: str) -> dict[str, Any]:
    # Of what was found, not of where: it stays when lines above are added.
    identity = hashlib.sha256(f"{rule}\0{title(decided)}\0{sentence}".encode()).hexdigest()[:32]
    return {
        "ruleId": rule,
        "ruleIndex": list(_LEVELS).index(rule),
        "level": _LEVELS[rule],
        "message": {"text": printable(sentence)},
        "locations": [_location(decided)],
        "partialFingerprints": {"object/v1": identity},
    }


def _location(decided: Preview) -> dict[str, Any]:
    logical = {"fullyQualifiedName": printable(title(decided)), "kind": "resource"}
    location: dict[str, Any] = {"logicalLocations": [logical]}
    if decided.found.source:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": _uri(decided.found.source)},
            "region": {"startLine": decided.found.line},
        }
    return location


def _uri(source: str) -> str:
    if source == STANDARD_INPUT:
        return "stdin"
    path = Path(source)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
