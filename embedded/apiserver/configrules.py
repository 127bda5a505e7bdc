"""Rules for webhook configurations and admission policies (pure)."""

from __future__ import annotations

from embedded.apiserver.objects import Json
from embedded.apiserver.status import Cause


def webhook_causes(obj: Json) -> list[Cause]:
    """What is wrong with a webhook configuration."""
    return []


def policy_causes(obj: Json) -> list[Cause]:
    """What is wrong with a ValidatingAdmissionPolicy."""
    return []


def binding_causes(obj: Json) -> list[Cause]:
    """What is wrong with a ValidatingAdmissionPolicyBinding."""
    return []
