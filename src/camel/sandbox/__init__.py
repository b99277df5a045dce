"""Code of strangers, executed under limits."""
