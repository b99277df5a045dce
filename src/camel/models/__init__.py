"""Models: the client for OpenAI-compatible endpoints, the small local model, the scripted one, the simulated endpoint."""
