"""The explorer: read, find, watch a society in the browser. Reads runs, and writes nothing into them."""
