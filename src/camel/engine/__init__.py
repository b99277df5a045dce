"""The engine: runs an async function over n items, durably. Independent of conversations."""
