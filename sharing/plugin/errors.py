"""What can go wrong while serving shares."""

from __future__ import annotations

from sharing.errors import GpuSharingError


class PluginError(GpuSharingError):
    """Serving shares to the kubelet failed."""


class AllocationError(PluginError):
    """A container cannot get what was asked for it; the text reaches the pod's status."""


class UnknownShareError(AllocationError):
    """The kubelet names a share that does not exist."""


class SeveralSharesError(AllocationError):
    """One container is to get several shares, which do not add up."""


class HeldShareError(AllocationError):
    """The kubelet hands out a share that a live container holds."""
