"""What a measurement should be, and where that is known from."""
