"""What the webhook costs a whole cluster, on a real control plane without kubelets."""
