"""How a whole fleet's numbers are judged at once: arrays in, arrays out. The rules: docs/decisions/0007."""
