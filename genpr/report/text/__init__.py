"""Results in a terminal and in CSV files."""
