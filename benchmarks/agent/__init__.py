"""What the agent costs and survives: ``python -m benchmarks.agent``."""
