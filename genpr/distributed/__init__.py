"""One score on many processes: who works with whom, and what they tell each other."""
