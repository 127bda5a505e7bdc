# The signatures are NVML's.
"""What newer drivers add: performance monitors, memory limits by cgroup, the NVLink fabric."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, Final

from sharing.board import Architecture
from sharing.nvml.codes import Code
from sharing.nvml.simulator.calls.topology import is_coherent, nvlink_count
from sharing.nvml.simulator.hardware import RefusedError
from sharing.nvml.simulator.session import GpmSample, Session
from sharing.nvml.simulator.state import Gpu, Machine, MemoryLimit
from sharing.nvml.simulator.symbols import (
    Privilege,
    address_of,
    export,
    fill,
    number,
    put_address,
    target,
)

_MIB: Final = 1 << 20
_WITH_MONITORS: Final = frozenset({Architecture.HOPPER, Architecture.BLACKWELL})
_BUSY_METRICS: Final = frozenset({1, 2})
"""``NVML_GPM_METRIC_GRAPHICS_UTIL`` and ``_SM_UTIL``."""
_MOST_PERCENT: Final = 100
_FABRIC_V2: Final = 0x02000024
_FABRIC_V3: Final = 0x03000028
_FABRIC_COMPLETED: Final = 3
_FABRIC_NOT_SUPPORTED: Final = 0
_FABRIC_NAMESPACE: Final = uuid.UUID("0b0c6a55-9f1d-5c0e-8a44-2f3f7a6d9e01")


# Performance monitors


@export("nvmlGpmQueryDeviceSupport")
def gpm_support(session: Session, handle: Any, answer: Any) -> None:
    """Whether a GPU has performance monitors: from Hopper on."""
    gpu = session.gpu(handle)
    fill(answer, isSupportedDevice=int(gpu.model.architecture in _WITH_MONITORS))


@export("nvmlGpmSampleAlloc")
def gpm_alloc(session: Session, answer: Any) -> None:
    """A new, empty sample."""
    put_address(answer, session.new_gpm_sample())


@export("nvmlGpmSampleFree")
def gpm_free(session: Session, sample: Any) -> None:
    """Give a sample back."""
    del session.gpm_samples[_sample(session, sample)]


@export("nvmlGpmSampleGet")
def gpm_get(session: Session, handle: Any, sample: Any) -> None:
    """Read the monitors of a whole GPU."""
    _read(session, session.gpu(handle), None, sample)


@export("nvmlGpmMigSampleGet")
def gpm_mig_get(session: Session, handle: Any, gi_id: Any, sample: Any) -> None:
    """Read the monitors of a GPU instance."""
    gpu, wanted = session.gpu(handle), number(gi_id)
    if wanted not in {each.id for each in gpu.instances}:
        raise RefusedError(Code.INVALID_ARGUMENT, f"no GPU instance {wanted}")
    _read(session, gpu, wanted, sample)


@export("nvmlGpmMetricsGet")
def gpm_metrics(session: Session, question: Any) -> None:
    """Metrics between two samples of one thing; each has its own return code."""
    struct = target(question)
    pair = [session.gpm_samples[_sample(session, one)] for one in (struct.sample1, struct.sample2)]
    first, second = pair
    if first is None or second is None or first[:2] != second[:2]:
        raise RefusedError(Code.INVALID_ARGUMENT, "two samples of one thing are needed")
    for metric in struct.metrics[: struct.numMetrics]:
        known = metric.metricId in _BUSY_METRICS
        metric.nvmlReturn = int(Code.SUCCESS if known else Code.NOT_SUPPORTED)
        if known:
            metric.value = (first.busy_percent + second.busy_percent) / 2


def _read(session: Session, gpu: Gpu, gi_id: int | None, sample: Any) -> None:
    if gpu.model.architecture not in _WITH_MONITORS:
        raise RefusedError(Code.NOT_SUPPORTED, f"{gpu.board} has no performance monitors")
    mine = [each for each in gpu.processes if gi_id is None or each.gi_id == gi_id]
    busy = min(sum(each.sm_percent for each in mine), _MOST_PERCENT)
    session.gpm_samples[_sample(session, sample)] = GpmSample(gpu.uuid, gi_id, busy)


def _sample(session: Session, handle: Any) -> int:
    address = address_of(handle)
    if address not in session.gpm_samples:
        raise RefusedError(Code.INVALID_ARGUMENT, "no sample")
    return address


# Memory limits


@export("nvmlDeviceSetMemoryLimits_v1", Privilege.ROOT)
def set_memory_limits(session: Session, handle: Any, limits: Any) -> None:
    """Limit the GPU memory of a cgroup; no limits take it away."""
    gpu, wanted = session.gpu(handle), target(limits)
    path, soft, hard = _path(wanted), wanted.softLimit, wanted.hardLimit
    if gpu.mig_current:
        raise RefusedError(Code.NOT_SUPPORTED, "not in MIG mode")
    if not path or (hard and soft > hard):
        raise RefusedError(Code.INVALID_ARGUMENT, "a cgroup, and a soft limit below the hard one")

    def step(_machine: Machine, now: Gpu) -> tuple[Gpu, None]:
        kept = [each for each in now.memory_limits if each.cgroup != path]
        if soft or hard:
            kept.append(MemoryLimit(cgroup=path, soft=soft, hard=hard))
        return replace(now, memory_limits=tuple(kept)), None

    session.change_gpu(gpu.uuid, step)


@export("nvmlDeviceGetMemoryLimits_v1")
def memory_limits(session: Session, handle: Any, answer: Any) -> None:
    """The limits of a cgroup and what its processes use; zeros where it has none."""
    gpu = session.gpu(handle)
    path = _path(target(answer))
    found = next((each for each in gpu.memory_limits if each.cgroup == path), None)
    used = sum(each.memory_mib for each in gpu.processes if each.cgroup == path) * _MIB
    soft, hard = (found.soft, found.hard) if found else (0, 0)
    fill(answer, softLimit=soft, hardLimit=hard, currentUsed=used)


def _path(struct: Any) -> str:
    path = struct.nameSpace or ""
    return path.decode(errors="replace") if isinstance(path, bytes) else str(path)


# The fabric


@export("nvmlDeviceGetGpuFabricInfo")
@export("nvmlDeviceGetGpuFabricInfoV")
def fabric_info(session: Session, handle: Any, answer: Any) -> None:
    """The NVLink fabric of a GPU: its clique, and its cluster where that spans nodes."""
    gpu, struct = session.gpu(handle), target(answer)
    if getattr(struct, "version", _FABRIC_V2) not in {_FABRIC_V2, _FABRIC_V3}:
        raise RefusedError(Code.ARGUMENT_VERSION_MISMATCH, "struct of another version")
    if not nvlink_count(gpu) or gpu.model.architecture not in _WITH_MONITORS:
        fill(answer, state=_FABRIC_NOT_SUPPORTED)
        return
    fill(answer, state=_FABRIC_COMPLETED, status=int(Code.SUCCESS), cliqueId=0)
    if is_coherent(gpu):
        cluster = uuid.uuid5(_FABRIC_NAMESPACE, session.machine().seed).bytes
        for index, byte in enumerate(cluster):
            struct.clusterUuid[index] = byte
        fill(answer, cliqueId=1)
