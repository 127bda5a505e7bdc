"""What can go wrong with time slices."""

from __future__ import annotations

from sharing.errors import DriverError


class TimeSliceError(DriverError):
    """A GPU's time slice was not read or not set. Shares work without it."""
