"""Published weight files: which there are, where they lie, and the proof that they are what they claim."""
