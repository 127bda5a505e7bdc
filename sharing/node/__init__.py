"""The node agent: what a node's GPUs shall be becomes what they are, and is then advertised.

The decisions are pure: ``wanted`` and ``observed`` give a ``plan`` of ``step``s, and ``offer``
says which shares the kubelet may hand out meanwhile. Only ``agent`` and the modules that it calls
talk to the driver, the kubelet, the disk and the API server.
"""
