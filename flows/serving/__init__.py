"""What serves the flows on Prefect: server, runner, worker, login, hooks."""
