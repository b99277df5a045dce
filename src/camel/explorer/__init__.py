"""The explorer: read, search and watch runs in the browser. It changes no data of a run; annotations are stored next to it."""
