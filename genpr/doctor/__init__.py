"""`genpr doctor`: what of this machine a score would need, looked at piece by piece, with what to do where it is broken."""
