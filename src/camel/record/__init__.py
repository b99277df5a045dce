"""How conversations are stored."""
