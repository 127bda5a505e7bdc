"""The Kubernetes API: one client for all programs, and stores kept fresh by watches.

What belongs here: verbs over HTTP with raw objects (``dict[str, Any]``), the errors an
API server answers with, credentials, and the list-and-watch cache. What does not: what
any object means; that is decided by the packages that ask.
"""
