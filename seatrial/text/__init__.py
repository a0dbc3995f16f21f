"""How values are written for people, and how secrets and control characters are taken out of text."""
