"""Generation: datasets from one declaration. Wires scenarios, models and storage to the engine's stages."""
