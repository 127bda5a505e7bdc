"""Certificates of the webhook: authority, leaf, bundle, rotation.

Knows nothing of GPUs or pods. What is decided (which step of a rotation comes next) is pure;
the shell around it reads and writes one Secret and the ``caBundle`` of our configurations.
"""
