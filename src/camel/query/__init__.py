"""Questions about stored conversations: filters, lists, counts, text search."""
