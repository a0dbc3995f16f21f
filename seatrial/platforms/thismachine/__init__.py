"""The machine that seatrial runs on, or the container it runs in, as the only node: no root, no namespaces."""
