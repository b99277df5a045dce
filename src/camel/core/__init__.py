"""The basic types of CAMEL and its one conversation loop. Imports only the standard library and msgspec."""
