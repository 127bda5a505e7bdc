"""The shape of the source: sizes, names and bans that keep every room small and named for what it
holds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("webhook", "sharing", "certs", "cli", "embedded")
GENERATED = re.compile(r"_pb2(_grpc)?\.py$")
MODULES = [
    path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if not GENERATED.search(path.name)
]
BANNED_MODULES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager"}
BANNED_CLASSES = re.compile(r"(Manager|Handler|Processor|Helper|Wrapper)$")
MOST_MODULE_LINES = 350
MOST_FUNCTION_LINES = 50


def modules() -> list[object]:
    return [pytest.param(path, id=str(path.relative_to(ROOT))) for path in MODULES]


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, its docstring left out."""
    first = function.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    skipped = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - skipped


@pytest.mark.parametrize("path", modules())
def test_a_module_says_why_it_exists_and_stays_small(path: Path) -> None:
    text = path.read_text("utf-8")
    tree = ast.parse(text)

    assert ast.get_docstring(tree), f"{path} opens without a docstring"
    assert len(text.splitlines()) <= MOST_MODULE_LINES
    assert path.stem not in BANNED_MODULES


@pytest.mark.parametrize("path", modules())
def test_functions_stay_small_and_classes_are_named_for_what_they_are(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))

    long = [f.name for f in functions(tree) if body_lines(f) > MOST_FUNCTION_LINES]
    banned = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and BANNED_CLASSES.search(node.name)
    ]
    assert (long, banned) == ([], [])


def test_the_lock_carries_hashes_and_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text("utf-8")
    pins = re.findall(r"^[a-z0-9][a-z0-9._-]*==", text, re.MULTILINE | re.IGNORECASE)

    assert len(pins) > 50
    assert text.count("--hash=sha256:") >= len(pins)
    assert "://" not in text
    assert "--index" not in text


def test_tests_have_no_package_files() -> None:
    """With them, ``import webhook`` inside a test would find the folder of tests."""
    assert not list((ROOT / "tests").rglob("__init__.py"))
