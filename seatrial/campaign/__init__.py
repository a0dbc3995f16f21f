"""Campaigns: suites in a loop over a cluster for hours or days, on the nodes that are left.

The loop (`loop.py`) starts a run for each phase and keeps its state in the history, from which it
resumes.
"""
