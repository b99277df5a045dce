"""Generation of datasets from scenarios and declarations."""
