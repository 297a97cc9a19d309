"""A score for every class, by the labels of both sides."""
