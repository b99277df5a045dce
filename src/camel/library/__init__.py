"""The library: what a program or a notebook uses."""
