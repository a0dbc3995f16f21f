"""What production asks for: `seatrial serve` with real nodes, whose processes are killed. make test-production"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.platforms.local import PLATFORM
from tests.site import LONG, QUICK, Site, site


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with a cluster `trial` of two local nodes, which a nightly and an ad-hoc deployment check."""
    if lacking := PLATFORM.missing():
        pytest.skip("; ".join(lacking))
    with site(tmp_path_factory.mktemp("site")) as found:
        furnish(found)
        found.start("trial.yaml", "--suite", "brief.yaml", "--timezone", "UTC")
        yield found


def furnish(found: Site) -> None:
    found.write("trial", nodes=2, platform={"kind": "local"})
    found.write("brief", **QUICK)
    found.write("long", **LONG)


@pytest.fixture
def out(served: Site, request: pytest.FixtureRequest) -> Path:
    name: str = request.node.name
    return served.folder / name
