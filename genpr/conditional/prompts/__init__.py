"""What each image was asked to show: prompts read from where people keep them, and matched to the images."""
