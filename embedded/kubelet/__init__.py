"""A kubelet without containers: everything between the API server and a device plugin.

It registers plugins, counts devices, assigns them when pods are admitted, keeps a
checkpoint, answers PodResources and writes pod and node status as a real kubelet does
(rules: the device plugin documentation and pkg/kubelet/cm/devicemanager). Containers are
simulated: no process runs, but what each would see is worked out in full (``view``).

Pure: naming, devices, choosing, ledger, cdi's resolution, environment's merge, podstatus,
nodestatus. At the edge: endpoint, plugins, podresources, checkpoint, podlife, kubelet.
"""
