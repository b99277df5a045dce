"""Models: the client for endpoints, local models, a scripted model, and a simulated endpoint."""
