"""Executes untrusted programs with limits."""
