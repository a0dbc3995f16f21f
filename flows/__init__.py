"""The Prefect flows, one module each."""
