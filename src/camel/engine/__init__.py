"""The engine: runs an async function over n items and loses nothing. Knows nothing of conversations."""
