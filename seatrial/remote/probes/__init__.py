"""Programs that run on the nodes: standard library and torch only, copied over SSH.

They never import seatrial.
"""

from pathlib import Path

PROBES = tuple(
    path for path in sorted(Path(__file__).parent.glob("*.py")) if path.name != "__init__.py"
)


def probe(name: str) -> Path:
    """Return the path of a probe's source file."""
    return Path(__file__).parent / f"{name}.py"
