"""What the server says about its certificate: when it ends, and whether handshakes fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from certs.context import HotContext


def expiry(context: HotContext) -> datetime | None:
    """When the served certificate ends; None where nothing is served."""
    return None if context.leaf is None else context.leaf.not_after


def unready_reason(context: HotContext) -> str:
    """Why handshakes fail now; empty where they do not."""
    end = expiry(context)
    if end is None:
        return "there is no certificate to serve"
    return f"it expired at {end:%Y-%m-%dT%H:%M:%SZ}" if end <= context.now else ""
