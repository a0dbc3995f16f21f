"""Reach nodes: SSH, MPI, and the probes that run there."""
