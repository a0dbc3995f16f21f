"""What a run tells people: HTML, markdown, Slack, the terminal. Pure functions over a RunResult; writing and sending happen in tasks."""
