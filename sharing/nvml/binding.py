"""pynvml, with its errors translated: the one place that imports it."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sharing.nvml.codes import Code
from sharing.nvml.errors import NvmlError, refusal

_ROOM: Final = 16
"""More than any board's instance maximum; drivers have reported wrong maxima for A30."""


class Binding:
    """NVML's functions; each failure names the call, its code and what it was called for.

    Args:
        simulate: A simulated machine's state file; the real driver if None.
    """

    def __init__(self, simulate: Path | None = None) -> None:
        if simulate is None:
            self.nvml: Any = importlib.import_module("pynvml")
        else:
            # Imported here: a node with GPUs needs none of it.
            from sharing.nvml import simulator

            self.nvml = simulator.bindings(simulate)

    def call(self, name: str, *arguments: Any, subject: str = "GPU driver") -> Any:
        """Call ``nvml<name>``.

        Raises:
            NvmlError: The subclass that the return code means.
        """
        function = f"nvml{name}"
        try:
            return getattr(self.nvml, function)(*arguments)
        except self.nvml.NVMLError as error:
            raise refusal(error.value, function, subject) from error
        except self.nvml.NVMLLibraryMismatchError as error:
            # What pynvml makes of a missing function behind some of its unversioned names.
            raise refusal(Code.FUNCTION_NOT_FOUND, function, subject) from error

    def attempt(self, name: str, *arguments: Any, default: Any, subject: str = "") -> Any:
        """Call ``nvml<name>``, with a default for boards and drivers that cannot answer."""
        try:
            return self.call(name, *arguments, subject=subject)
        except NvmlError as error:
            if error.code in UNANSWERABLE:
                return default
            raise

    def newest(
        self, name: str, versions: Sequence[str], *arguments: Any, default: Any, subject: str
    ) -> Any:
        """As ``attempt``, by the first version of a call that the driver has.

        Args:
            name: The call without its version.
            versions: Suffixes such as ``_v3``, newest first.
            arguments: The same for each version.
            default: For boards and drivers that cannot answer any of them.
            subject: As for ``call``.
        """
        for version in versions:
            try:
                return self.call(f"{name}{version}", *arguments, subject=subject)
            except NvmlError as error:
                if error.code not in UNANSWERABLE:
                    raise
        return default

    def text(self, name: str, *arguments: Any, subject: str = "GPU driver") -> str:
        """Call a function that answers with a text; older pynvml answered in bytes."""
        answer = self.call(name, *arguments, subject=subject)
        return answer.decode() if isinstance(answer, bytes) else str(answer)

    def filled(self, name: str, kind: str, *arguments: Any, subject: str) -> list[Any]:
        """Call a function that fills the caller's array of handles and says how many."""
        count = ctypes.c_uint(0)
        array = (getattr(self.nvml, kind) * _ROOM)()
        reference = ctypes.byref(count)
        self.call(name, *arguments, array, reference, subject=subject)
        return list(array)[: count.value]


UNANSWERABLE: Final = frozenset(
    {Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND, Code.ARGUMENT_VERSION_MISMATCH, Code.NO_DATA}
)
