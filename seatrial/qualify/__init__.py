"""Nodes in and out of service on a cluster at work: which to test, what to make of it, and how much
is covered.

A pass (`seatrial/qualify/cycle.py`) chooses idle nodes and tests them alone, then in pairs of nodes
that have passed. The gate decides what follows for each, unless so many fail alike that they share
a cause. Pure but for the pass.
"""
