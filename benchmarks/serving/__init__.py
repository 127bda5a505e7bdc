"""How shares are served to the kubelet, measured: ``python -m benchmarks.serving``."""
