"""How the server behaves: each setting with its unit and why it is what it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Addresses, deadlines and bounds of the admission server. All times in seconds."""

    host: str = ""
    """Empty for every interface."""
    port: int = 8443
    """0 for a free one."""
    health_host: str = ""
    health_port: int | None = 8080
    """Plain HTTP for probes and metrics; None for none."""

    reuse_port: bool = False
    """Whether other processes listen on the same port, each for its part of the connections."""

    keepalive_timeout_s: float = 300.0
    """Far above the 90 s after which the API server drops idle connections: whoever closes first
    may do so under a request on its way, and the API server does not repeat a POST
    (kubernetes#127335)."""
    handshake_timeout_s: float = 10.0
    """As long as the API server waits for it."""
    unused_timeout_s: float = 120.0
    """From a connection's start to its first byte. API servers open connections that they then do
    not need and keep for later (Go, net/http: a dial races with connections that become free); to
    close one sooner than they do, after 90 s, is to close it under a review."""
    head_timeout_s: float = 5.0
    """From a request's first byte to the end of its head."""
    body_timeout_s: float = 5.0
    """From the end of the head to the end of the body; less where the caller waits less."""

    most_connections: int = 2048
    """An API server keeps 25; beyond this the one that was idle longest gives way."""
    most_handshakes: int = 1024
    """Of TLS under way at once; beyond this the oldest gives way. One takes some milliseconds,
    so what is older than a thousand others is not going to end."""
    most_buffered_bytes: int = 64 * 2**20
    """Of bodies that are arriving, all together; a decoded body takes five to ten times as much,
    but only one is decoded at a time."""
    most_lag_s: float = 0.5
    """How late the event loop may run before reviews are turned away."""

    drain_delay_s: float = 5.0
    """From unready to the closed port: the time that endpoints need to forget us."""
    drain_timeout_s: float = 100.0
    """From the closed port to the end, idle connections included: above the API server's 90 s."""
