"""The domain of GPU sharing, and the programs around the GPUs.

What stands directly in this package is pure: modes, sizes, share classes and their names,
quantities, boards, layouts, the inventory. These modules compute over frozen values; they
neither await, nor read a clock, a file or the network. The programs live in the folders:

- ``api``: the custom resources as typed models, and their CRDs
- ``nvml``: the GPU driver and the simulator below it
- ``cluster``: the Kubernetes API
- ``plugin``: the kubelet's device-plugin protocol
- ``node``: the agent
- ``controller``: layouts and faults across nodes

There is no ``common`` and no ``utils``: a thing without a room has not been understood yet.
"""
