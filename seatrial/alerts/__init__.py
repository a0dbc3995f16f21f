"""The content of alerts, and the settings of their receivers. Sending happens in tasks."""
