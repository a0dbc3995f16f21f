"""The store's schema, step by step; applied by seatrial.history.engine."""
