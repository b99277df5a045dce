"""Maps of a run's texts: points that are close if the texts mean the same, and measures of diversity."""
