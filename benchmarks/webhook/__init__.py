"""The webhook against Go: CPU, latency, memory, growth and restarts, measured in one run."""
