"""Steps of the chain as Prefect tasks."""
