"""What may change or refuse a request between decoding and storing.

The order is that of kube-apiserver: plug-ins in the server, mutating webhooks (twice where
needed), the registry's own validation, policies, validating webhooks, quota.
"""
