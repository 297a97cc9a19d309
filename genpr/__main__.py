"""`python -m genpr`."""

from genpr.cli.main import main

if __name__ == "__main__":
    main()
