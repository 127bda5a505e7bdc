"""The two ways in which a pod can be refused."""

from __future__ import annotations

from sharing.errors import GpuSharingError, InputError


class RequestError(InputError):
    """The pod asks in a way that means nothing: HTTP 422."""


class PolicyError(GpuSharingError):
    """The pod asks clearly, and its namespace's profile or the cluster says no: HTTP 403."""
