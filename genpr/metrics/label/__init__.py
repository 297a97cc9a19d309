"""Did the generator make what was asked for: recognised labels against those that were asked for."""
