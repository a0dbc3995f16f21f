"""RunAI: its settings. It cannot be run by this version."""
