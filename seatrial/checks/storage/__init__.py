"""The check `storage`: file systems that nodes share, from all nodes at once."""
