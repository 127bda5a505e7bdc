"""Asking a program on loopback how it is, without TLS."""

from __future__ import annotations

import contextlib
import http.client

_TIMEOUT_S = 2.0


def body_of(port: int, path: str) -> str:
    """What a program says at a path; empty where it says anything but 200.

    Raises:
        OSError: It does not answer.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    with contextlib.closing(connection):
        try:
            connection.request("GET", path)
            with connection.getresponse() as response:
                text = response.read().decode()
                return text if response.status == http.client.OK else ""
        except http.client.HTTPException as error:
            raise ConnectionError(f"port {port}: {error!r}") from error
