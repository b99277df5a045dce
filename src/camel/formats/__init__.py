"""Import and export formats, one module per format."""
