"""Benchmarks: each is one command that prints a table with the bare baseline measured in the same run."""
