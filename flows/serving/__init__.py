"""Servers, runner and hooks that serve the flows on Prefect."""
