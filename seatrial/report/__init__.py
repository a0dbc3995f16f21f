"""Reports of a run: HTML, Markdown, PDF, JSON, the terminal, Prometheus metrics.

Pure; writing and sending happen in tasks.
"""
