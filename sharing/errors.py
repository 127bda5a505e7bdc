"""Errors that teach.

One tree for all programs, so that a terminal, an admission denial, an event and a log
line say the same words:

    GpuSharingError
    ├── InputError            something that a person wrote is wrong (exit 2, HTTP 422)
    │   ├── QuantityError     a Kubernetes quantity
    │   ├── SizeError         a share size or MIG profile
    │   ├── ResourceNameError an extended resource name under our prefix
    │   └── LayoutError       a layout that a GPU cannot have
    ├── UnavailableError      something outside us is missing or does not answer (exit 1)
    └── DriverError           the GPU driver refused; see sharing.nvml
"""

from __future__ import annotations

from typing import Final

_SHOWN_CHARACTERS: Final = 120


class GpuSharingError(Exception):
    """An error made of its parts; ``str()`` puts them into one sentence.

    Args:
        subject: What the error is about, as the reader knows it (a pod, a file, a GPU).
        wrong: What is wrong with it, values quoted.
        expected: What would have been right.
        fix: What to do now, an imperative clause.
        example: One spelling that works.
    """

    def __init__(
        self, subject: str, wrong: str, *, expected: str = "", fix: str = "", example: str = ""
    ) -> None:
        self.subject = subject
        self.wrong = wrong
        self.expected = expected
        self.fix = fix
        self.example = example
        super().__init__(subject, wrong)

    def __str__(self) -> str:
        parts = [f"{self.subject}: {self.wrong}" if self.subject else self.wrong]
        if self.expected:
            parts.append(f"expected {self.expected}")
        if self.fix:
            parts.append(self.fix)
        if self.example:
            parts.append(f"for example: {self.example}")
        return "; ".join(parts)

    def about(self, subject: str) -> GpuSharingError:
        """The same error told about a wider subject, for a caller who knows where it happened."""
        inner = f"{self.subject}: {self.wrong}" if self.subject else self.wrong
        return type(self)(
            subject, inner, expected=self.expected, fix=self.fix, example=self.example
        )


class InputError(GpuSharingError, ValueError):
    """Something that a person wrote is wrong.

    A ValueError too, so that a pydantic validator may raise it.
    """


class QuantityError(InputError):
    """A Kubernetes quantity does not follow the grammar or is out of range."""


class SizeError(InputError):
    """A share size or a MIG profile does not follow the grammar."""


class ResourceNameError(InputError):
    """A resource name under our prefix names no share class."""


class LayoutError(InputError):
    """A layout that the GPU cannot have."""


class UnavailableError(GpuSharingError):
    """Something outside this program is missing, refuses or does not answer."""


class DriverError(GpuSharingError):
    """The GPU driver refused a call or cannot be reached."""


def shown(value: object) -> str:
    """A value as it may stand in a message: quoted, escapes visible, cut at 120 characters."""
    text = repr(value)
    if len(text) > _SHOWN_CHARACTERS:
        return f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"
    return text
