"""Evaluates CEL the way the API server does, with Google's implementation.

Two differences to cel-go are evened out here:

* optional access on null (``object.?metadata`` when ``object`` is null) is "absent" there and
  an error in cel-cpp, so an expression that fails that way is evaluated again with null
  variables empty;
* of the Kubernetes libraries the ones that policies use are added: quantities (compared as
  floating-point numbers), ``find``, ``sum``, ``isSorted``, ``indexOf`` of lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from embedded.apiserver.quantities import amount
from embedded.errors import EmbeddedError
from sharing.errors import InputError, QuantityError

try:
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings
except ImportError as _missing:
    raise EmbeddedError(
        "cel-expr-python",
        "the embedded cluster evaluates rules with it, and it is not installed",
        fix="install the extra that brings it",
        example="pip install 'gpu-sharing[embedded]'",
    ) from _missing

VARIABLES: Final = (
    "object",
    "oldObject",
    "request",
    "namespaceObject",
    "params",
    "variables",
    "self",
    "oldSelf",
)
_NULL_ACCESS: Final = "No matching overloads found : _?._(null_type"
_T: Final = cel.Type


class CelError(InputError):
    """An expression does not compile, or its evaluation failed."""


def _is_quantity(text: str) -> bool:
    try:
        amount(text)
    except QuantityError:
        return False
    return True


def _plain(items: Sequence[Any]) -> list[Any]:
    return [item.plain_value() if hasattr(item, "plain_value") else item for item in items]


def _find(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    return found[0] if found else ""


def _function(  # noqa: PLR0917 - a table row
    name: str, style: str, result: Any, parameters: Sequence[Any], impl: Any
) -> Any:
    overload = cel.Overload(
        id=f"k8s_{name}_{len(parameters)}",
        return_type=result,
        parameters=list(parameters),
        is_member=style == "method",
        impl=impl,
    )
    return cel.FunctionDecl(name, [overload])


@lru_cache(maxsize=1)
def _environment() -> Any:
    number, text, items = _T.DOUBLE, _T.STRING, _T.List(_T.DYN)
    functions = [
        _function("isQuantity", "global", _T.BOOL, [text], _is_quantity),
        _function("quantity", "global", number, [text], lambda t: float(amount(t))),
        _function("isGreaterThan", "method", _T.BOOL, [number, number], lambda a, b: a > b),
        _function("isLessThan", "method", _T.BOOL, [number, number], lambda a, b: a < b),
        _function("compareTo", "method", _T.INT, [number, number], lambda a, b: (a > b) - (a < b)),
        _function("isInteger", "method", _T.BOOL, [number], lambda a: float(a).is_integer()),
        _function("asInteger", "method", _T.INT, [number], int),
        _function("asApproximateFloat", "method", number, [number], lambda a: a),
        _function("find", "method", text, [text, text], _find),
        _function("sum", "method", _T.DYN, [items], lambda a: sum(_plain(a))),
        _function("min", "method", _T.DYN, [items], lambda a: min(_plain(a))),
        _function("max", "method", _T.DYN, [items], lambda a: max(_plain(a))),
        _function("isSorted", "method", _T.BOOL, [items], lambda a: _plain(a) == sorted(_plain(a))),
    ]
    return cel.NewEnv(
        variables=dict.fromkeys(VARIABLES, _T.DYN),
        extensions=[
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
            ext_math.ExtMath(),
            ext_bindings.ExtBindings(),
        ],
        functions=functions,
    )


@lru_cache(maxsize=2048)
def _program(expression: str) -> Any:
    try:
        return _environment().compile(expression)
    except RuntimeError as error:
        reason = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        raise CelError("", f"compilation failed: {reason}") from error


def check(expression: str) -> str:
    """What keeps an expression from compiling; empty where nothing does."""
    try:
        _program(expression)
    except CelError as error:
        return error.wrong
    return ""


def evaluate(expression: str, variables: Mapping[str, Any]) -> Any:
    """The value of an expression as plain data.

    Args:
        expression: CEL.
        variables: JSON data for some of ``VARIABLES``; the others are null.

    Raises:
        CelError: It does not compile, or failed.
    """
    data = {name: variables.get(name) for name in VARIABLES}
    result = _program(expression).eval(data=data)
    if result.type() == _T.ERROR:
        if _NULL_ACCESS not in str(result.value()):
            raise CelError("", str(result.value()))
        result = _program(expression).eval(data={name: _filled(v) for name, v in data.items()})
        if result.type() == _T.ERROR:
            raise CelError("", str(result.value()))
    return result.plain_value()


def _filled(value: Any) -> Any:
    """The value with null as an empty mapping, at the top and in what it holds left out."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return {key: _filled(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_filled(item) for item in value]
    return value
