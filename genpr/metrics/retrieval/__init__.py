"""Is what belongs together found together? Ranked lists, copies, and texts that match."""
