"""A run handed over: its files in one archive, a manifest of their digests, and a signature that
anyone can check.

Nothing here is seatrial's own format: a gzipped tar, `sha256sum -c`, and `ssh-keygen -Y verify`.
"""

MANIFEST = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.sig"
HOW_TO = "VERIFY.txt"
# What ssh-keygen binds a signature to, so that it cannot stand for something else
NAMESPACE = "seatrial-bundle"
