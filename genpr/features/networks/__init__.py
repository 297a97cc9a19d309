"""Networks behind their resize rules, and the features that need no network."""
