"""Long jobs: their budget, and what happens when calls fail."""
