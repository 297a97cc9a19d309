"""From a protocol and a plan of metrics to the values of one score, and what makes them suspicious."""
