"""How busy each MIG instance is: performance monitors, which boards have from Hopper on.

Per-process utilisation does not exist in MIG mode. A monitor's figure is what happened between two
samples, so the first look at an instance has none.

Source: nvml.h, GPM functions (``nvmlGpmMigSampleGet``, ``NVML_GPM_METRIC_SM_UTIL``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sharing.nvml.binding import UNANSWERABLE, Binding
from sharing.nvml.codes import Code
from sharing.nvml.errors import NvmlError

_MOST_PERCENT: Final = 100
_GONE: Final = frozenset({Code.INVALID_ARGUMENT, Code.NOT_FOUND})
"""What is said of an instance that somebody destroyed meanwhile."""


class InstanceMonitors:
    """The samples of one session with the driver; they end with it.

    Args:
        binding: The driver.
    """

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._before: dict[tuple[str, int], Any] = {}
        self._without: set[str] = set()

    def busy(self, uuid: str, handle: Any, instances: Iterable[int]) -> Mapping[int, int]:
        """Per cent of the SMs' time that instances were busy since the last look, by GI id.

        Instances of which nothing is known yet, and those of boards without monitors, are left
        out.

        Args:
            uuid: The GPU.
            handle: Its handle.
            instances: Its GPU instances.

        Raises:
            NvmlError: The GPU does not answer.
        """
        there = set(instances)
        for key in [one for one in self._before if one[0] == uuid and one[1] not in there]:
            self._free(self._before.pop(key))
        if uuid in self._without:
            return {}
        found = {}
        for gi_id in sorted(there):
            try:
                percent = self._of(uuid, handle, gi_id)
            except NvmlError as error:
                if error.code in UNANSWERABLE:
                    self._without.add(uuid)
                    return {}
                if error.code in _GONE:
                    continue
                raise
            if percent is not None:
                found[gi_id] = percent
        return found

    def _of(self, uuid: str, handle: Any, gi_id: int) -> int | None:
        subject, call = f"MIG instance {gi_id} on GPU {uuid}", self._binding.call
        now = call("GpmSampleAlloc", subject=subject)
        try:
            call("GpmMigSampleGet", handle, gi_id, now, subject=subject)
        except NvmlError:
            self._free(now)
            raise
        before, self._before[uuid, gi_id] = self._before.get((uuid, gi_id)), now
        if before is None:
            return None
        try:
            return self._between(before, now, subject)
        finally:
            self._free(before)

    def _between(self, before: Any, now: Any, subject: str) -> int | None:
        nvml = self._binding.nvml
        question = nvml.c_nvmlGpmMetricsGet_t()
        question.version, question.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
        question.sample1, question.sample2 = before, now
        question.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        self._binding.call("GpmMetricsGet", question, subject=subject)
        metric = question.metrics[0]
        if metric.nvmlReturn != Code.SUCCESS:
            return None
        return min(round(float(metric.value)), _MOST_PERCENT)

    def _free(self, sample: Any) -> None:
        self._binding.attempt("GpmSampleFree", sample, default=None)
