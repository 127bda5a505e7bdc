"""What a look at a GPU shows of its health, and whom an event concerns (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sharing.node.finding import Finding, recovery_of, sign_of
from sharing.node.health import HealthPolicy
from sharing.node.observed import GpuState
from sharing.node.xid import Sign
from sharing.nvml.observed import DriverEvent, EventKind, ObservedGpu, Vitals


def findings_of(
    gpu: ObservedGpu, before: Vitals | None, policy: HealthPolicy, *, hot: bool = False
) -> tuple[Finding, ...]:
    """Everything that a look at one GPU says against it.

    Args:
        gpu: The GPU as it is now.
        before: Its measures at the last look; None at the first one, when counters say nothing.
        policy: What signs mean.
        hot: Whether it was too hot at the last look: then it has to cool down for good.
    """
    if gpu.fault is not None:
        sign = Sign.GPU_LOST if gpu.lost else Sign.GPU_UNREADABLE
        found = sign_of(sign, policy.table, gpu.fault.reason, steady=True)
        return () if found is None else (found,)
    seen = (
        recovery_of(int(gpu.recovery_action), policy.table),
        *_measured(gpu, before, policy, hot=hot),
    )
    return tuple(finding for finding in seen if finding is not None)


def _measured(
    gpu: ObservedGpu, before: Vitals | None, policy: HealthPolicy, *, hot: bool
) -> Iterator[Finding | None]:
    now = gpu.vitals
    if now.rows_failed:
        yield sign_of(Sign.ROW_REMAP_FAILURE, policy.table, steady=True)
    elif now.rows_pending:
        yield sign_of(Sign.ROW_REMAP_PENDING, policy.table, steady=True)
    if is_hot(now, policy, hot=hot):
        heat = f"{now.temperature_c} of {now.slowdown_c} degrees Celsius"
        yield sign_of(Sign.OVERHEATED, policy.table, heat, steady=True)
    if now.nvlinks_down and not gpu.mig_mode:
        links = ", ".join(map(str, now.nvlinks_down))
        yield sign_of(Sign.NVLINK_DOWN, policy.table, links, steady=True)
    if before is None:
        return
    if grown := _growth(now.ecc_uncorrected, before.ecc_uncorrected):
        yield sign_of(Sign.ECC_UNCORRECTED, policy.table, f"{grown} more")
    if grown := _growth(now.nvlink_recoveries, before.nvlink_recoveries):
        yield sign_of(Sign.NVLINK_ERRORS, policy.table, f"{grown} more")


def is_hot(vitals: Vitals, policy: HealthPolicy, *, hot: bool) -> bool:
    """Whether a GPU is too hot; one that was has to cool down below the threshold."""
    if vitals.temperature_c is None or not vitals.slowdown_c:
        return False
    return vitals.temperature_c >= vitals.slowdown_c - (policy.cool_down_c if hot else 0)


def patient_of(event: DriverEvent, gpus: Iterable[GpuState], policy: HealthPolicy) -> str | None:
    """Whom an event concerns: a MIG instance's device id, or a GPU's UUID.

    The instance that it names, if that is known and the fault is not the whole GPU's by its
    nature; the GPU otherwise. None if the driver does not say which GPU it is.
    """
    whole = event.kind is not EventKind.XID or policy.table.of_xid(event.data).gpu
    if event.gi_id is None or whole:
        return event.uuid
    for gpu in gpus:
        for one in gpu.instances if gpu.uuid == event.uuid else ():
            if one.gi_id == event.gi_id:
                return one.device_id(gpu.uuid) or event.uuid
    return event.uuid


def ends_co_tenants(event: DriverEvent, gpus: Iterable[GpuState], policy: HealthPolicy) -> bool:
    """Whether one program's mistake ended those of others, although the device is well.

    Clients of an MPS daemon are one fault domain: a fatal exception of one of them ends all that
    run on the GPU, or in the MIG instance. A time slice keeps it to itself.

    Source: NVIDIA MPS documentation, "Error Containment".
    """
    if event.kind is not EventKind.XID or not policy.table.of_xid(event.data).application:
        return False
    mine = [gpu for gpu in gpus if gpu.uuid == event.uuid]
    if event.gi_id is None:
        return any(gpu.mps is not None for gpu in mine)
    instances = (one for gpu in mine for one in gpu.instances if one.gi_id == event.gi_id)
    return any(one.mps is not None for one in instances)


def _growth(now: int | None, before: int | None) -> int:
    """How much a counter grew; nothing where it was set back by a reset."""
    if now is None or before is None:
        return 0
    return max(0, now - before)
