"""What: one module per step of the chain."""
