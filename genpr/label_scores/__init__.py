"""Labels that were asked for, as a part of a score: what to read, whom to ask, what it is worth."""
