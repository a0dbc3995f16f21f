"""Nodes in and out of service on a cluster at work: which to test, what the results mean, and how
much of the cluster is covered.

A pass (`seatrial/qualify/cycle.py`) chooses idle nodes and tests them alone, then in pairs of nodes
that have passed. The gate decides what follows for each, unless so many fail alike that they share
a cause. All modules but `cycle` and `current` are pure.
"""
