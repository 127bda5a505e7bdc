"""A scheduler: filters, scores and binds as kube-scheduler does by default.

The decision is a pure function over views of nodes and pods (``decision``); the loop that
reads them from the API server and binds is at the edge (``loop``). Rules and messages are
upstream's. Left out: volumes, host ports, topology spread, dynamic resource claims.
"""
