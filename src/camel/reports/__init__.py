"""Reports: their parts, and how they are rendered."""
