"""Compute modes that MPS changes, and how they come back, whatever happens in between.

EXCLUSIVE_PROCESS keeps processes from using a GPU beside its MPS daemon. The mode that was found
is on disk before it is changed, so a crash cannot lose it; a GPU left exclusive without a daemon
is useless to everybody (NVIDIA/k8s-device-plugin#657).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Protocol

import orjson
import structlog

from sharing.errors import DriverError
from sharing.mps.errors import MpsError

EXCLUSIVE_PROCESS: Final = 3
"""Source: nvml.h, ``NVML_COMPUTEMODE_EXCLUSIVE_PROCESS``."""

_log = structlog.get_logger()


class ComputeModes(Protocol):
    """The driver's compute modes, by GPU UUID; integers are NVML's ``nvmlComputeMode_t``."""

    async def get(self, gpu_uuid: str) -> int:
        """The mode now. Raises DriverError."""
        ...

    async def set(self, gpu_uuid: str, mode: int) -> None:
        """Change it. Raises DriverError."""
        ...


class ComputeModeRecord:
    """Changes compute modes, and knows what they were.

    Args:
        modes: The driver's compute modes.
        path: The file that remembers what was found.
    """

    def __init__(self, modes: ComputeModes, path: Path) -> None:
        self._modes = modes
        self._path = path

    def changed(self) -> tuple[str, ...]:
        """GPUs whose mode is ours, by UUID."""
        return tuple(sorted(self._read()))

    async def make_exclusive(self, gpu_uuid: str) -> None:
        """Set EXCLUSIVE_PROCESS; what is found the first time is remembered.

        Raises:
            MpsError: The record cannot be written.
            DriverError: The driver refuses.
        """
        mode = await self._modes.get(gpu_uuid)
        record = self._read()
        if gpu_uuid not in record:
            self._write(record | {gpu_uuid: mode})
        if mode != EXCLUSIVE_PROCESS:
            await self._modes.set(gpu_uuid, EXCLUSIVE_PROCESS)

    async def restore(self, gpu_uuid: str) -> None:
        """Set what was found; a refusal is logged and tried again at the next occasion."""
        record = self._read()
        if gpu_uuid not in record:
            return
        try:
            await self._modes.set(gpu_uuid, record[gpu_uuid])
        except DriverError as error:
            _log.warning("compute mode was not restored", gpu=gpu_uuid, reason=str(error))
            return
        self._write({one: mode for one, mode in self._read().items() if one != gpu_uuid})

    def _read(self) -> dict[str, int]:
        try:
            return {
                str(gpu): int(mode) for gpu, mode in orjson.loads(self._path.read_bytes()).items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, TypeError) as error:
            _log.warning(
                "compute mode record is unreadable", file=str(self._path), reason=str(error)
            )
            return {}

    def _write(self, record: dict[str, int]) -> None:
        scratch = self._path.with_name(f".{self._path.name}.{os.getpid()}.new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with scratch.open("wb") as file:
                file.write(orjson.dumps(record, option=orjson.OPT_SORT_KEYS))
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self._path)
        except OSError as error:
            raise MpsError(
                f"file {self._path}",
                f"cannot be written: {error.strerror or error}",
                fix="mount the MPS folder into the agent's container, writable",
            ) from error
