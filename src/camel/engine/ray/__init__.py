"""The engine on a Ray cluster. The only importer of ray."""
