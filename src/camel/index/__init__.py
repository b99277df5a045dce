"""Indexes over stored conversations: facets, counts, sorted copies, full text."""
