"""Evaluation: what runs are like, measured. The study of behaviour so far."""
