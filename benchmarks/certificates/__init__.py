"""What becomes of reviews while certificates, replicas and the API server itself change."""
