"""`python -m camel` is the `camel` command."""

from camel.cli import main

if __name__ == "__main__":
    main()
