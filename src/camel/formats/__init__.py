"""One module for each format, in and out."""
