"""Numbers of two whole sets of features: Fréchet and kernel distances, Inception and Vendi score."""
