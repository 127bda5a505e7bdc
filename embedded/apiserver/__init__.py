"""A Kubernetes API server for the subset that gpu-sharing uses, in memory, over HTTP(S).

It is honest to the real one where the product depends on it: admission call-outs, conflicts,
watches, validation after mutation, quota. What it does not have is in ``server``'s neighbours'
docstrings: no RBAC, no controllers but those of namespaces and owners, no persistence.
"""

from embedded.apiserver.calls import ADMIN, User
from embedded.apiserver.identity import node, service_account
from embedded.apiserver.server import ApiServer

__all__ = ["ADMIN", "ApiServer", "User", "node", "service_account"]
