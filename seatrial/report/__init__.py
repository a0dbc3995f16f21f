"""What a run tells people: HTML, markdown, Slack, the terminal. Pure; writing and sending happen in tasks."""
