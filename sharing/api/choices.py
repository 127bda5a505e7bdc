"""The closed sets that a SharingProfile's fields choose from."""

from __future__ import annotations

from enum import StrEnum


class WholeGpu(StrEnum):
    """What becomes of a plain ``nvidia.com/gpu``."""

    CONVERT = "convert"
    KEEP = "keep"
    DENY = "deny"


class MultiGpu(StrEnum):
    """What becomes of a plain ``nvidia.com/gpu`` above 1."""

    EXCLUSIVE = "exclusive"
    DENY = "deny"


class Enforcement(StrEnum):
    """Whether verdicts take effect. Warn and audit change nothing and record what would."""

    ENFORCE = "enforce"
    WARN = "warn"
    AUDIT = "audit"


class System(StrEnum):
    """Another system whose requests are understood, for clusters that move over."""

    HAMI = "hami"
    KAI = "kai"
    NOS = "nos"
    ALIYUN = "aliyun"
    """gpushare-scheduler-extender, ``aliyun.com/gpu-mem`` in GiB."""
    ALIYUN_MIB = "aliyun-mib"
    """As aliyun, installed to count MiB."""
    VOLCANO = "volcano"
    NVIDIA_SHARED = "nvidia-shared"
    """NVIDIA's device plugin with ``renameByDefault``."""
