"""Logs that already exist: the cluster that they are of, and their verdict."""
