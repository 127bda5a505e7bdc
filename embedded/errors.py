"""What can go wrong with the embedded cluster itself.

What its API server answers to a client is a Status object and lives in
``embedded.apiserver.status``; this module is for whoever starts the cluster.
"""

from __future__ import annotations

from sharing.errors import UnavailableError


class EmbeddedError(UnavailableError):
    """The embedded cluster cannot start, or one of its parts ended."""
