"""Nodes in memory, for tests: the real SSH code talks to them, and nothing is started, slept for or
sent.

    platform = FakePlatform(nodes=3)
    platform.nodes["node-1"].refuses = True
    cluster = platform.cluster()

`cluster` goes wherever a cluster file's does. Each node answers on one end of a socket pair, by a
real SSH server; what a command prints comes from a Python function, and the functions that ship
play a healthy node. Times are computed from the node's own rates. README.md has examples.
"""

from tests.fake_platform.node import FakeNode, Program, ProgramOutput, Request
from tests.fake_platform.platform import FakePlatform

__all__ = ["FakeNode", "FakePlatform", "Program", "ProgramOutput", "Request"]
