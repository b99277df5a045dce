"""The library API for programs and notebooks."""
