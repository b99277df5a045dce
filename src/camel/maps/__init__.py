"""Maps: what a run is about, as points that lie close where their texts mean the same, and how varied they are."""
