"""What all API objects share: spelling, strictness, and errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from sharing.errors import GpuSharingError, InputError, shown

GROUP: Final = "gpu.sharing"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"


class ApiModel(BaseModel):
    """A frozen model with camelCase fields that refuses unknown ones."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        arbitrary_types_allowed=True,
    )


class StatusModel(ApiModel):
    """As ApiModel, for what programs write: unknown fields of newer versions are passed over."""

    model_config = ConfigDict(extra="ignore")


Model = TypeVar("Model", bound=BaseModel)


def parse_model(model: type[Model], value: object, subject: str) -> Model:
    """The value that raw JSON or YAML stands for.

    Args:
        model: What to read.
        value: The raw mapping.
        subject: What the value is, for the error: ``SharingProfile 'inference'``.

    Raises:
        InputError: A field is unknown, missing or wrong; the first one is named by its path.
    """
    if not isinstance(value, Mapping):
        raise InputError(subject, f"{shown(value)} is no mapping", expected="a mapping of fields")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _first(error, subject) from error


def _first(error: ValidationError, subject: str) -> InputError:
    details = error.errors(include_url=False)
    first = details[0]
    path = _path(first["loc"])
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    if first["type"] == "extra_forbidden":
        return InputError(
            subject, f"unknown field {path}{more}", fix="correct the spelling or remove it"
        )
    if first["type"] == "missing":
        return InputError(subject, f"field {path} is missing{more}", fix="add it")
    cause: Any = first.get("ctx", {}).get("error")
    where = f"field {path}" if path else "its fields"
    if isinstance(cause, GpuSharingError):
        return InputError(
            subject,
            f"{where}: {cause.wrong}{more}",
            expected=cause.expected,
            fix=cause.fix,
            example=cause.example,
        )
    reason = first["msg"].removeprefix("Value error, ")
    return InputError(subject, f"{where} is {shown(first['input'])}{more}: {reason}")


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")
