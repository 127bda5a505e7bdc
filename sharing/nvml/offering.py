"""What MIG profiles a GPU offers, read from the driver, which knows better than any table."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any, Final

from sharing.board import GPU_INSTANCE_ENUMS, Board, BoardMigProfile, Placement, mig_label_gb
from sharing.errors import SizeError
from sharing.migprofile import MigProfile
from sharing.nvml.binding import UNANSWERABLE, Binding
from sharing.nvml.codes import GPU_INSTANCE_PROFILES, Code
from sharing.nvml.errors import NvmlError

_LAST_ENUM: Final = 63
"""Where the search ends with a driver that never answers INVALID_ARGUMENT."""


def offered_profiles(
    binding: Binding, handle: Any, *, uuid: str, total_mib: int, known: Board | None
) -> tuple[BoardMigProfile, ...]:
    """The MIG profiles of a GPU, smallest first; empty on boards without MIG.

    Args:
        binding: The driver.
        handle: The GPU's handle.
        uuid: The GPU's UUID, for errors.
        total_mib: The GPU's memory, for names that the driver does not give.
        known: The catalogue's board, for places that an old driver lists in MIG mode only.
    """
    found = []
    for enum in range(_LAST_ENUM + 1):
        try:
            info = _info(binding, handle, enum, uuid)
        except NvmlError as error:
            if error.code is Code.INVALID_ARGUMENT and enum >= GPU_INSTANCE_PROFILES - 1:
                break
            if error.code in UNANSWERABLE | {Code.INVALID_ARGUMENT}:
                continue
            raise
        profile = _name(info, enum, total_mib)
        if profile is not None:
            places = _placements(binding, handle, info, uuid) or _listed(known, enum)
            found.append(_facts(info, enum, profile, places))
    return tuple(sorted(found, key=lambda each: each.profile))


def differences(read: Board, known: Board) -> tuple[str, ...]:
    """Where the driver says otherwise than the catalogue, a clause each."""
    listed = {each.enum: each for each in known.mig}
    told = []
    if read.memory_mib != known.memory_mib:
        told.append(f"memory is {read.memory_mib} MiB, catalogue {known.memory_mib}")
    for each in read.mig:
        other = listed.get(each.enum)
        if other is None:
            told.append(f"offers {each.profile}, not in the catalogue")
        elif replace(other, earliest_driver="") != each:
            told.append(f"{each.profile} differs from the catalogue's {other.profile}")
    return tuple(told)


def _info(binding: Binding, handle: Any, enum: int, uuid: str) -> Any:
    name = "DeviceGetGpuInstanceProfileInfo"
    try:
        return binding.call(name, handle, enum, 2, subject=f"GPU {uuid}")
    except NvmlError as error:
        if error.code not in {Code.FUNCTION_NOT_FOUND, Code.ARGUMENT_VERSION_MISMATCH}:
            raise
    return binding.call(name, handle, enum, 1, subject=f"GPU {uuid}")


def _name(info: Any, enum: int, total_mib: int) -> MigProfile | None:
    """The driver's own name, or the computed one; None for a kind that we cannot name."""
    given = getattr(info, "name", b"")
    text = given.decode(errors="replace") if isinstance(given, bytes) else str(given)
    try:
        if text:
            return MigProfile.parse(text.removeprefix("MIG "))
        if enum not in GPU_INSTANCE_ENUMS:
            return None
        slices, suffix = GPU_INSTANCE_ENUMS[enum]
        label = mig_label_gb(info.memorySizeMB, total_mib)
        return MigProfile(gpu_slices=slices, memory_gb=label, attributes=suffix)
    except SizeError:
        return None


def _placements(binding: Binding, handle: Any, info: Any, uuid: str) -> tuple[Placement, ...]:
    nvml = binding.nvml
    call = "DeviceGetGpuInstancePossiblePlacements"
    count = ctypes.c_uint(0)
    reference = ctypes.byref(count)
    subject = f"GPU {uuid}"
    asked = binding.attempt(call, handle, info.id, None, reference, default=None, subject=subject)
    if asked is None or count.value == 0:
        return ()
    array = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    binding.call(call, handle, info.id, array, reference, subject=subject)
    return tuple(sorted(Placement(at.start, at.size) for at in array[: count.value]))


def _listed(known: Board | None, enum: int) -> tuple[Placement, ...]:
    profiles = known.mig if known else ()
    return next((each.placements for each in profiles if each.enum == enum), ())


def _facts(
    info: Any, enum: int, profile: MigProfile, placements: tuple[Placement, ...]
) -> BoardMigProfile:
    return BoardMigProfile(
        profile=profile,
        enum=enum,
        id=info.id,
        memory_mib=info.memorySizeMB,
        sms=info.multiprocessorCount,
        copy_engines=info.copyEngineCount,
        decoders=info.decoderCount,
        encoders=info.encoderCount,
        jpegs=info.jpegCount,
        ofas=info.ofaCount,
        max_instances=info.instanceCount,
        placements=placements,
    )
