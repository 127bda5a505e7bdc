"""Initialisation and versions."""

from __future__ import annotations

from typing import Any

from sharing.nvml.simulator.session import Session
from sharing.nvml.simulator.symbols import export, put, put_text


@export("nvmlInit_v2", delay="open_s")
def init(session: Session) -> None:
    """Start using the library."""
    session.start()


@export("nvmlInitWithFlags", delay="open_s")
def init_with_flags(session: Session, _flags: Any) -> None:
    """Start using the library."""
    session.start()


@export("nvmlShutdown")
def shutdown(session: Session) -> None:
    """Stop using the library."""
    session.stop()


@export("nvmlSystemGetDriverVersion")
def driver_version(session: Session, buffer: Any, size: Any) -> None:
    """The kernel driver's version."""
    put_text(buffer, size, session.machine().driver_version)


@export("nvmlSystemGetNVMLVersion")
def nvml_version(session: Session, buffer: Any, size: Any) -> None:
    """The library's version."""
    put_text(buffer, size, session.machine().nvml_version)


@export("nvmlSystemGetCudaDriverVersion")
@export("nvmlSystemGetCudaDriverVersion_v2")
def cuda_version(session: Session, answer: Any) -> None:
    """CUDA's version, 1000 times the major plus 10 times the minor."""
    put(answer, session.machine().cuda_version)
