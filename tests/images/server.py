"""The image of deployments/server and what runs beside it, built where no registry can be reached.

Their bases are stand-ins from Debian's packages, in bases/. What is built on them is what ships:
deployments/server/Dockerfile as it is, with all that it takes from Debian and PyPI.
"""

from pathlib import Path

from tests.images import lane
from tests.images.lane import ROOT

BASES = Path(__file__).parent / "bases"
DOCKERFILE = ROOT / "deployments" / "server" / "Dockerfile"
# What the ignore file lets in
CONTEXT = [
    line.removeprefix("!")
    for line in Path(f"{DOCKERFILE}.dockerignore").read_text().splitlines()
    if line.startswith("!")
]
POSTGRES = "docker.io/library/postgres:17-alpine"


def build_server() -> str:
    """Build deployments/server/Dockerfile when what goes into it has changed; its name."""
    return lane.build_file(
        "server", DOCKERFILE, [ROOT / name for name in CONTEXT], _stand_in("python")
    )


def build_postgres() -> str:
    """A PostgreSQL that goes by the environment of Docker's; its name."""
    return _stand_in("postgres")


def _stand_in(name: str) -> str:
    text = (BASES / name / "Dockerfile").read_text()
    return lane.build_text(name, text.replace("FROM debian", f"FROM {lane.base()}"), BASES / name)
