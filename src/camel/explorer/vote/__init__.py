"""The voting app: people compare two solutions without knowing whose they are."""
