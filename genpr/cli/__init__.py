"""The `genpr` command: parsing and printing only."""
