"""``gpu-sharing admit`` over a folder of many manifests, as CI runs it."""
