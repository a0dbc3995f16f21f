"""The oldest store that is upgraded.

A new store has today's schema from the first, so nothing makes this one.
"""

revision = "0009"
down_revision = None


def upgrade() -> None:
    pass
