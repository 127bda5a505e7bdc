"""Tolerations as a pod holds them.

Source: Kubernetes API reference, core/v1 Toleration, and kubernetes/kubernetes,
``ValidateTolerations``: what breaks its rules would make every pod with a share invalid.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from sharing.api.model import ApiModel
from sharing.api.texts import LabelKey, LabelValue
from sharing.errors import InputError


class Toleration(ApiModel):
    """A Kubernetes toleration, added to pods that get a share."""

    key: LabelKey | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.key is None and self.operator != "Exists":
            raise InputError(
                "toleration",
                "without a key it tolerates every taint, and its operator is not Exists",
                fix="name a key, or set operator: Exists",
                example="{key: nvidia.com/gpu, operator: Exists}",
            )
        if self.operator == "Exists" and self.value:
            raise InputError(
                "toleration",
                f"operator Exists compares no value, and value is {self.value}",
                fix="remove value, or set operator: Equal",
                example="{key: nvidia.com/gpu, operator: Exists}",
            )
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise InputError(
                "toleration",
                "tolerationSeconds is only for effect NoExecute",
                fix="remove it, or set effect: NoExecute",
                example="{key: x, operator: Exists, effect: NoExecute, tolerationSeconds: 60}",
            )
        return self
