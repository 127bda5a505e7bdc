"""What can go wrong with MPS."""

from __future__ import annotations

from sharing.errors import GpuSharingError, InputError


class MpsError(GpuSharingError):
    """An MPS daemon does not run, does not answer, or does not do what it was told."""


class MpsMisreportError(MpsError):
    """A daemon answers, but reports other limits than it was given."""


class MpsLimitError(InputError):
    """Limits that MPS cannot enforce."""
