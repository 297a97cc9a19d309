"""What class each image is of: read from where people keep it, matched to the images, compared between the sides."""
