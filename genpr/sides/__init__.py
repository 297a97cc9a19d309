"""The two sides of a score, opened and embedded: images, archives of features, joined shards, texts."""
