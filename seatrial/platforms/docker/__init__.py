"""Docker: containers of one host as nodes."""
