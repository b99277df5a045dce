"""A run on disk or in a bucket."""
