"""A run while it happens and after: its checks, lock, progress, login, and its files read back."""
