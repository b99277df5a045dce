"""A scenario is this folder: `scenario.toml` and the texts that it names. This file makes it a package that can be found."""
