"""Packages that one builder or sink alone needs: extras of seatrial, and how to install one that is
missing.
"""

import sys
from importlib.util import find_spec

PACKAGES = {
    "google": ("google-cloud-build", "google-cloud-storage"),
    "apprise": ("apprise",),
    "charts": ("matplotlib",),
}


def has_module(name: str) -> bool:
    """Return whether a module can be imported, without importing it; of a dotted name its packages
    are.
    """
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def how_to_install(extra: str) -> str:
    """Return what is missing and the command that installs it."""
    packages = " ".join(PACKAGES[extra])
    return (
        f"needs {packages}, seatrial's extra `{extra}`: uv pip install --python "
        f"{sys.executable} {packages}"
    )
