"""The custom resources of the group ``gpu.sharing`` as typed, frozen models.

Untrusted input becomes a value here or an error that names the field. The CRDs that the API
server gets are rendered from these models (``crd``), so that both say the same.
"""
