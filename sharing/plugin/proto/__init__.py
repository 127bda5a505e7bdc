"""The kubelet's wire protocols: device plugin ``v1beta1`` and PodResources ``v1``.

Only what is generated lives here, beside the ``.proto`` files it comes from and the
program that makes it (``python -m sharing.plugin.proto.generate``). Nothing is
re-exported: importing a protocol costs start-up time, and most programs need one.

The generated grpc classes are typed by stubs of their own (``*_pb2_grpc.pyi``), so that
that callers need no wrappers.
"""
