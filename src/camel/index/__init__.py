"""What makes stored conversations quick to find: facets, counts, sorted copies, text."""
