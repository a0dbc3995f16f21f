"""Nodes as pods of a Kubernetes cluster: one pod per node, each with the image's own sshd.

What is submitted is pure (`objects`, `pod`, `machines`, `launchers/`); `api` is the only place that talks to the
cluster, `waiting` says why the pods are not there yet, and `forward` reaches their sshd through the API server.
"""

from seatrial.platforms.kubernetes.reasons import REASONS

__all__ = ["REASONS"]
