"""A Kubernetes API server for the subset that gpu-sharing uses, in memory, over HTTP(S).

It is honest to the real one where the product depends on it: admission call-outs, conflicts,
watches, validation after mutation, quota; tests/embedded/apiserver names the upstream rule of
each behaviour. What it leaves out:

* RBAC (everybody may do everything; identities appear in reviews and in the audit log);
* controllers, but those of namespaces, owner references, definitions and quota status;
* persistence, and resources of other groups than those in ``kinds``;
* conversion webhooks (versions of a custom resource differ by apiVersion alone), validation
  ratcheting, ``format`` in schemas;
* parameters, ``authorizer`` and audit annotations of admission policies;
* scopes of quotas, LimitRanges, service account tokens;
* in server-side apply, ownership of anything but leaves and list entries.
"""

from embedded.apiserver.calls import ADMIN, User
from embedded.apiserver.identity import node, service_account
from embedded.apiserver.server import ApiServer

__all__ = ["ADMIN", "ApiServer", "User", "node", "service_account"]
