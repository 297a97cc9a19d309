"""Labels aside, what a conditional generator was requested to draw: prompts, retrieval and entities."""
