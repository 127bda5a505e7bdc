"""Whether a node is fit to share GPUs: from what was seen there to checks with a remedy (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sharing.node.outfit import GpuSeen, OutfitSeen

_OLDEST_DRIVER: Final = 450
"""MIG and the third process lists begin with R450 and R510; MPS limits with R470."""
_GOOD_DRIVER: Final = 525
_OLDEST_KUBELET: Final = (1, 28)
"""The first in which CDI names of device plugins are on by default.

Source: kubernetes feature gates, DevicePluginCDIDevices.
"""
_RUNTIMES: Final = {"containerd": (1, 7), "cri-o": (1, 24)}
"""From which version on a runtime reads CDI files of kind 0.5."""
_SOCKET_BYTES: Final = 107
"""Of a unix socket's path. Source: unix(7)."""
_UUID_LENGTH: Final = 40


class Outcome(StrEnum):
    """What a check came to."""

    OK = "ok"
    WARN = "warn"
    """Something works less well, or cannot be told from here."""
    FAIL = "fail"
    """Shares are not served until it is put right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    outcome: Outcome
    finding: str
    remedy: str = ""
    """What to do; empty where all is well."""


def examine(seen: OutfitSeen) -> tuple[Check, ...]:
    """All checks in the order in which a person puts things right."""
    return tuple(check for each in _CHECKS for check in each(seen))


def _driver(seen: OutfitSeen) -> Iterator[Check]:
    if seen.driver_trouble:
        yield _fail(
            "driver",
            seen.driver_trouble,
            "install NVIDIA's driver, or run this in a container with the nvidia runtime class "
            "and NVIDIA_VISIBLE_DEVICES=all; --simulate-state FILE looks at simulated GPUs",
        )
        return
    major = _numbers(seen.driver_version)[:1]
    said = f"driver {seen.driver_version}, {len(seen.gpus)} GPUs"
    if not seen.gpus:
        yield _fail("driver", said, "this node has no GPU that the driver lists: see dmesg")
    elif major < (_OLDEST_DRIVER,):
        yield _fail("driver", said, f"upgrade to R{_GOOD_DRIVER} or later")
    elif major < (_GOOD_DRIVER,):
        yield _warn("driver", said, f"upgrade to R{_GOOD_DRIVER} or later for all of MIG and MPS")
    else:
        yield _ok("driver", said)
    for gpu in seen.gpus:
        yield _gpu(gpu)


def _gpu(gpu: GpuSeen) -> Check:
    name, said = f"GPU {gpu.index}", gpu.product
    if gpu.fault:
        return _warn(name, f"{said}: {gpu.fault}", "reset it, or restart the node; others serve")
    if gpu.foreign_pids:
        pids = ", ".join(map(str, gpu.foreign_pids))
        return _warn(
            name,
            f"{said}: processes {pids} of no pod use it",
            "a layout that needs the GPU idle waits for them: end them, or know that",
        )
    if not gpu.in_catalogue:
        return _ok(name, f"{said}; not in the catalogue, so all is read from the driver")
    return _ok(name, said)


def _toolkit(seen: OutfitSeen) -> Iterator[Check]:
    if seen.simulated:
        yield _ok("container toolkit", "simulated GPUs need none")
        return
    found = sorted(seen.programs & {"nvidia-ctk", "nvidia-container-runtime"})
    if found:
        yield _ok("container toolkit", ", ".join(found))
    else:
        yield _warn(
            "container toolkit",
            "nvidia-ctk and nvidia-container-runtime are not seen from here",
            "on the node itself: install NVIDIA's container toolkit; from a container this is "
            "no news",
        )
    if seen.driver_trouble:
        return
    if seen.missing_device_files:
        yield _fail(
            "device files",
            f"{', '.join(seen.missing_device_files)} missing",
            "run nvidia-modprobe -u -c 0 on the node, or start its nvidia-persistenced",
        )
    else:
        yield _ok("device files", "those of the driver are there")


def _rights(seen: OutfitSeen) -> Iterator[Check]:
    if seen.simulated:
        yield _ok("rights", "simulated GPUs need none")
        return
    if seen.root:
        yield _ok("rights", "root")
    elif seen.mig_right:
        yield _warn(
            "rights",
            "not root, but MIG instances may be made and destroyed",
            "run the agent as root: MIG mode, compute mode and time slices need it",
        )
    else:
        yield _fail("rights", "not root", "run the agent as root with SYS_ADMIN, as the chart does")
    if seen.host_pids:
        yield _ok("process ids", "the node's own pid namespace")
    else:
        yield _warn(
            "process ids",
            "a pid namespace of our own, so the driver hides the processes of pods",
            "set hostPID: true; without it use by share is not known and MPS refuses clients",
        )


def _cgroups(seen: OutfitSeen) -> Iterator[Check]:
    if seen.cgroup_version == 0:
        yield _warn(
            "cgroups",
            "neither version is mounted here",
            "mount /sys/fs/cgroup, or know that use by share is not known",
        )
        return
    dmem = ", GPU memory is accounted (dmem)" if seen.dmem else ""
    yield _ok("cgroups", f"version {seen.cgroup_version}{dmem}")


def _kubelet(seen: OutfitSeen) -> Iterator[Check]:
    folder = seen.sockets
    if not folder.exists:
        yield _fail(
            "kubelet",
            f"{folder.path} is not there",
            "start the kubelet, mount its folder, or name another one with --kubelet-dir",
        )
        return
    if not seen.kubelet_answers:
        yield _fail("kubelet", f"nobody answers in {folder.path}", "start the kubelet")
    elif not folder.writable:
        yield _fail("kubelet", f"{folder.path} cannot be written", "mount it writable, as root")
    else:
        yield _ok("kubelet", f"answers in {folder.path}")
    if seen.pod_resources_answer:
        yield _ok("pod resources", "the kubelet says who holds what")
    else:
        yield _fail(
            "pod resources",
            "nobody answers at pod-resources/kubelet.sock",
            "mount the kubelet's pod-resources folder; the service is on by default",
        )
    if seen.checkpoint_trouble:
        yield _fail("kubelet checkpoint", seen.checkpoint_trouble, "restart the kubelet")


def _folders(seen: OutfitSeen) -> Iterator[Check]:
    for name, folder, purpose in (
        ("CDI folder", seen.cdi, "the container runtime reads device names there"),
        ("state folder", seen.state, "what must outlive reboots lies there"),
        ("MPS folder", seen.mps, "daemons and clients of MPS meet there"),
    ):
        if not folder.writable:
            wrong = "cannot be written" if folder.exists else "is not there and cannot be made"
            yield _fail(name, f"{folder.path} {wrong}", f"make it writable: {purpose}")
        elif name == "state folder" and folder.volatile:
            yield _warn(
                name, f"{folder.path} is gone after a reboot", "put it on a disk: --state-dir"
            )
        else:
            yield _ok(name, folder.path)
    longest = len(f"{seen.mps.path}/") + _UUID_LENGTH + len("/pipe/control")
    if longest > _SOCKET_BYTES:
        yield _fail(
            "MPS folder", f"sockets below {seen.mps.path} have too long a path", "use a shorter one"
        )


def _programs(seen: OutfitSeen) -> Iterator[Check]:
    if seen.simulated:
        yield _ok("MPS programs", "stand-ins, as the GPUs are simulated")
        return
    missing = {"nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "unshare"} - seen.programs
    if missing:
        yield _warn(
            "MPS programs",
            f"{', '.join(sorted(missing))} not found",
            "mount the driver's programs (driver capability compute,utility); needed for mode mps",
        )
    else:
        yield _ok("MPS programs", "nvidia-cuda-mps-control, nvidia-cuda-mps-server, unshare")
    if "nvidia-smi" not in seen.programs:
        yield _warn(
            "nvidia-smi",
            "not found",
            "mount it (driver capability utility): it sets time slices, and before Hopper resets",
        )
    else:
        yield _ok("nvidia-smi", "found")


def _conflicts(seen: OutfitSeen) -> Iterator[Check]:
    if seen.rival:
        yield _fail("other managers", seen.rival, "see docs/operations/agent.md")
    elif seen.mig_manager:
        yield _warn("other managers", seen.mig_manager, "see docs/operations/agent.md")
    else:
        yield _ok("other managers", "none serves here")
    for said in seen.announced:
        yield _warn("other managers", said, "set the label before the node is managed")


def _clock(seen: OutfitSeen) -> Iterator[Check]:
    if seen.clock_synchronised is None:
        yield _warn("clock", "the kernel does not say whether it is right", "run chrony or ntpd")
    elif not seen.clock_synchronised:
        yield _warn(
            "clock",
            "not synchronised",
            "run chrony or ntpd: certificates, leases and the age of faults go by it",
        )
    else:
        yield _ok("clock", "synchronised")


def _cluster(seen: OutfitSeen) -> Iterator[Check]:
    node = seen.cluster
    if node is None:
        return
    if node.trouble:
        yield _fail("cluster", node.trouble, "check --kubeconfig and --node-name")
        return
    if node.managed:
        yield _ok("node label", "gpu.sharing/managed=true")
    else:
        yield _warn(
            "node label",
            "the node is not ours to serve",
            "label it gpu.sharing/managed=true once all else is well",
        )
    yield _version("kubelet version", node.kubelet, _OLDEST_KUBELET)
    name, _, version = node.runtime.partition("://")
    if name in _RUNTIMES:
        yield _version("container runtime", version, _RUNTIMES[name], name=name)
    else:
        yield _warn(
            "container runtime",
            f"{node.runtime or 'unknown'} is not known to read CDI files",
            "use containerd 1.7 or CRI-O 1.24, or later",
        )
    if node.gfd:
        yield _ok("GPU Feature Discovery", "has labelled the node; no conflict")


def _version(check: str, said: str, oldest: tuple[int, int], *, name: str = "") -> Check:
    shown = f"{name} {said}".strip()
    if _numbers(said)[:2] >= oldest:
        return _ok(check, shown)
    wanted = ".".join(map(str, oldest))
    return _fail(check, f"{shown or 'unknown'} is too old for CDI", f"upgrade to {wanted} or later")


_CHECKS: Final[tuple[Callable[[OutfitSeen], Iterator[Check]], ...]] = (
    _driver,
    _toolkit,
    _rights,
    _cgroups,
    _kubelet,
    _folders,
    _programs,
    _conflicts,
    _clock,
    _cluster,
)


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``v1.30.2-eks`` is (1, 30, 2)."""
    found = []
    for part in version.removeprefix("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
    return tuple(found)


def _ok(name: str, finding: str) -> Check:
    return Check(name=name, outcome=Outcome.OK, finding=finding)


def _warn(name: str, finding: str, remedy: str) -> Check:
    return Check(name=name, outcome=Outcome.WARN, finding=finding, remedy=remedy)


def _fail(name: str, finding: str, remedy: str) -> Check:
    return Check(name=name, outcome=Outcome.FAIL, finding=finding, remedy=remedy)
