"""Nodes as network namespaces on this machine, each with its own host name, hosts file and real sshd."""
