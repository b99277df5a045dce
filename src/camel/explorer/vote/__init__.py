"""The voting app: people compare two solutions without knowing which system wrote them."""
