"""Nodes as the steps of one job of Slurm."""
