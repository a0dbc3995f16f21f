"""Format values for people, and remove secrets and control characters from text."""
