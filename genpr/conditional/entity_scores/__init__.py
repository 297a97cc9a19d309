"""What was asked for against what is there: images and answers scored by the entities they show or name."""
