"""How workers agree on an update: one exchange a file."""
