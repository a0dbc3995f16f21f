"""Nodes as pods of a Kubernetes cluster: one pod per node, each with the image's own sshd.

`launchers`, `pod` and `machines` describe what is submitted, without side effects; `api` is the
only module that talks to the cluster, `waiting` explains why pods are not ready, and `forward`
reaches their sshd.
"""
