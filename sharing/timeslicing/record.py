"""Which time slices were found before we changed them, on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson
import structlog

from sharing.timeslice import TimeSlice
from sharing.timeslicing.errors import TimeSliceError

_log: Final = structlog.get_logger()


class SliceRecord:
    """A small file, written whole.

    Args:
        path: Where it lies.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, TimeSlice]:
        """What was found, by GPU UUID; empty if there is no file, or none that can be read."""
        try:
            raw = orjson.loads(self._path.read_bytes())
            return {str(gpu): TimeSlice(value) for gpu, value in raw.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, TypeError) as error:
            _log.warning("time slice record is unreadable", file=str(self._path), reason=str(error))
            return {}

    def write(self, record: Mapping[str, TimeSlice]) -> None:
        """Keep this.

        Raises:
            TimeSliceError: It cannot be written.
        """
        scratch = self._path.with_name(f".{self._path.name}.{os.getpid()}.new")
        content = orjson.dumps({gpu: str(one) for gpu, one in sorted(record.items())})
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with scratch.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self._path)
        except OSError as error:
            raise TimeSliceError(
                f"file {self._path}",
                f"cannot be written: {error.strerror or error}",
                fix="mount the state folder into the agent's container, writable",
            ) from error
