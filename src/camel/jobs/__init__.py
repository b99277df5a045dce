"""Long jobs: runner, budget, failure policy, progress and status."""
