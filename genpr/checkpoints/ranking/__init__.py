"""Which result is better: a criterion, who is tied for best, and the trade-off of two metrics."""
