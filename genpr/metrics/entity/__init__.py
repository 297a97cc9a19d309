"""What was to be there against what was found, counted by image and by entity."""
