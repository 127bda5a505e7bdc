"""Certificates: who the webhook is, who trusts it, and how both change unnoticed.

What belongs here: making an authority and a leaf, the bundle that API servers trust,
checks of what others hand in, TLS contexts, and the rotation of all of it. What does
not: anything about GPUs or admission. Imports `sharing.errors` only; the adapter
`certs.cluster` alone may know `sharing.cluster`.

    start      an authority, a leaf and a key in one call
    authority  issues one leaf, then is forgotten           (pure: clock and randomness come in)
    leaf       a certificate with its key, and its faults   (pure)
    bundle     authorities that are trusted together        (pure)
    secret     a Secret's bytes and the state they mean     (pure)
    sight      what one replica saw, and for how long       (pure)
    rotation   Secret, bundles, sight, clock -> next step   (pure; schedule, step, healing)
    serving    which leaf a replica serves                  (pure)
    report     who trusts what until when                   (pure)
    context    TLS contexts from memory, swapped while serving
    probe      a handshake as an API server makes it
    files      a pair from files that may change at any time
    servertime the time as API servers have it
    cluster    steps carried out through the Kubernetes API
    keeper     the loop that keeps a serving program's certificate good
    metrics    what the keeper counts and knows
"""
