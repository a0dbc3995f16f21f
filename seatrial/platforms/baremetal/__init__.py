"""Bare metal: its settings. It cannot be run by this version."""
