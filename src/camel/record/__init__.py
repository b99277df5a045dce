"""The storage format of conversations."""
