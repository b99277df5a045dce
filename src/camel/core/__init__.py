"""The nouns of CAMEL and its one conversation loop. Pure: the standard library and msgspec only."""
