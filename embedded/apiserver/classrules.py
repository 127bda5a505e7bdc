"""Rules for runtime classes (pure).

Source: ``pkg/apis/node/validation/validation.go``.
"""

from __future__ import annotations

from embedded.apiserver.metadata import dns_label_causes, label_causes
from embedded.apiserver.objects import Json, entries, section
from embedded.apiserver.podrules import resource_causes, toleration_causes
from embedded.apiserver.status import Cause, invalid_value


def runtime_class_causes(runtime_class: Json) -> list[Cause]:
    """What is wrong with a runtime class."""
    causes = dns_label_causes(str(runtime_class.get("handler") or ""), "handler")
    # The overhead goes through the rules for containers, which name the field in their way.
    overhead = {"limits": section(runtime_class, "overhead", "podFixed")}
    causes += resource_causes(overhead, "overhead")
    selector = section(runtime_class, "scheduling", "nodeSelector")
    causes += label_causes(selector, "scheduling.nodeSelector")
    return causes + toleration_causes(
        entries(runtime_class, "scheduling", "tolerations"), "scheduling.tolerations"
    )


def runtime_class_update_causes(new: Json, old: Json) -> list[Cause]:
    """What is wrong with a changed runtime class."""
    changed = new.get("handler") != old.get("handler")
    immutable = [invalid_value("handler", None, "field is immutable")] if changed else []
    return immutable + runtime_class_causes(new)
