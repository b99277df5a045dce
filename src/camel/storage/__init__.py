"""Storage: what a run leaves on disk, and how it stays whole when the machine does not."""
