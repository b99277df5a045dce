"""Queries over stored conversations: filters, lists, counts and text search."""
