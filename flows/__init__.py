"""When: one module per Prefect flow."""
