"""Running programs that nobody has read: in a sandbox, with the judge outside (docs/decisions/0011)."""
