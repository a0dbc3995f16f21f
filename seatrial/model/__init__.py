"""Verdicts, measurements, results and nodes: plain data for every other package."""
