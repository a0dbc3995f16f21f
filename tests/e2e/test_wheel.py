"""The wheel, installed into an environment of its own by `uv tool install`, away from the
checkout.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import yaml

from seatrial.builders.plan import context_files, context_hash
from seatrial.config.image import Docker
from tests.e2e.conftest import BRIEF, TRAINING
from tests.site import write_namesakes

pytestmark = pytest.mark.gate

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    path.relative_to(ROOT).as_posix() for path in ROOT.glob("deployments/clusters/*.yaml")
)
IMAGES = sorted(path.parent.name for path in ROOT.glob("images/*/Dockerfile"))
LOG = ROOT / "tests" / "golden" / "nccl-logs" / "abci_a100_intranode4_allreduce_old.log"
_HASH = """
import sys
from seatrial.builders.plan import context_files, context_hash
from seatrial.config.image import Docker
for name in sys.argv[1:]:
    recipe = Docker(builder="docker", build=name)
    print(context_hash(recipe.context, context_files(recipe), {}))
"""
_RENDER = """
import json, sys
from click.testing import CliRunner
from seatrial.cli.app import app
rendered = {name: CliRunner().invoke(app, ["render", name, "--json"]) for name in sys.argv[1:]}
print(json.dumps({name: (done.exit_code, done.stdout) for name, done in rendered.items()}))
"""


@dataclass(frozen=True, slots=True)
class Installed:
    """The installed command, with a home and a current folder of its own."""

    folder: Path

    def __call__(
        self, *arguments: str, program: str = "seatrial"
    ) -> subprocess.CompletedProcess[str]:
        own = ("SEATRIAL_", "PREFECT_", "PYTHON", "XDG_")
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(own)
        }
        return subprocess.run(
            [str(self.python.with_name(program)), *arguments],
            cwd=self.folder / "here",
            env={**environment, "HOME": str(self.folder), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def python(self) -> Path:
        return self.folder / "tools" / "seatrial" / "bin" / "python"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The wheel without extras; the current folder has modules that are called as ours are."""
    folder = tmp_path_factory.mktemp("wheel")
    tools = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run(
        [uv, "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)], check=True
    )
    (wheel,) = folder.glob("*.whl")
    install = [uv, "tool", "install", "--quiet", "--python", sys.executable, str(wheel)]
    subprocess.run(install, env={**os.environ, **tools}, check=True)
    (folder / "here").mkdir()
    write_namesakes(folder / "here")
    yield Installed(folder)


def test_every_example_renders(installed: Installed) -> None:
    done = installed("-P", "-c", _RENDER, *EXAMPLES, program="python")
    rendered = json.loads(done.stdout)
    assert list(rendered) == EXAMPLES, done.stderr
    for status, files in rendered.values():
        assert status == 0, files
        assert all(json.loads(files).values())


def test_images_get_the_same_tags_from_the_wheel_as_from_a_checkout(installed: Installed) -> None:
    recipes = [Docker(builder="docker", build=name) for name in IMAGES]
    expected = [context_hash(recipe.context, context_files(recipe), {}) for recipe in recipes]
    assert installed("-c", _HASH, *IMAGES, program="python").stdout.split() == expected


def test_wheel_installs_no_top_level_package_besides_seatrial(installed: Installed) -> None:
    (packages,) = installed.folder.glob("tools/seatrial/lib/python*/site-packages")
    assert not [name for name in ("flows", "tasks") if (packages / name).exists()]
    assert (packages / "seatrial" / "flows" / "check.py").is_file()


def test_judge_works_from_the_wheel(installed: Installed) -> None:
    done = installed("judge", str(LOG), "--hardware", "A100-SXM", "--nodes", "1", "--json")
    assert json.loads(done.stdout)["judgements"], done.stderr


def test_nodes_of_this_machine_need_the_extra_local(installed: Installed) -> None:
    done = installed("doctor")
    assert done.returncode == 1
    assert "missing torch: install seatrial with its extra `local`" in done.stdout
    done = installed("run", "this-machine", "--no-notify")
    assert done.returncode == 3, done.stderr
    assert "torch is missing on every node" in done.stdout.splitlines()[-1]
    assert "extra `local`" in done.stdout.splitlines()[-1]
    # The extra would be another 5 GB; this is the torch of the tests.
    packages = next(installed.folder.glob("tools/seatrial/lib/python*/site-packages"))
    (packages / "torch-of-the-tests.pth").write_text(str(Path(torch.__file__).parents[1]))
    assert "ok      torch" in installed("doctor").stdout
    suite = {"name": "brief", **BRIEF, "devices": {"seconds": 0.1}, "training": TRAINING}
    (installed.folder / "here" / "brief.yaml").write_text(yaml.safe_dump(suite))
    arguments = (
        "-m",
        "seatrial",
        "run",
        "this-machine",
        "--suite",
        "brief.yaml",
        "--no-notify",
        "--json",
    )
    done = installed(*arguments, program="python")  # which looks in the current folder first
    checks = {check["name"]: check["verdict"] for check in json.loads(done.stdout)["checks"]}
    assert {"devices", "collectives", "training"} <= set(checks), done.stderr
    assert not {"not_run", "inconclusive"} & set(checks.values()), done.stderr


def test_a_package_of_a_site_adds_a_check_a_platform_and_a_reader(installed: Installed) -> None:
    """Built and installed without a network; its second check is broken, which costs a line and
    nothing else.
    """
    here, uv = installed.folder / "here", str(Path(sys.executable).with_name("uv"))
    shutil.copytree(Path(__file__).with_name("extension"), here / "extension")
    subprocess.run(
        [uv, "build", "--quiet", "--offline", "--wheel", "--out-dir", "dist", "extension"],
        cwd=here,
        check=True,
    )
    (wheel,) = (here / "dist").glob("*.whl")
    install = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--python",
        str(installed.python),
        str(wheel),
    ]
    subprocess.run(install, check=True)

    suites = json.loads(installed("suites", "--json").stdout)
    assert "clock" in json.dumps(suites)
    (here / "night.log").write_text("burnin: node-1 ok\nburnin: node-2 bad\n")
    judged = installed("judge", "night.log")
    assert judged.stdout.splitlines()[-1] == "fail: burnin: node-2", judged.stderr
    (here / "rack.yaml").write_text("name: rack\nnodes: 1\nplatform:\n  kind: rack\n  row: 3\n")
    (here / "times.yaml").write_text(
        "name: times\ndevices: null\ncollectives: null\nclock: {most_s: 600}\n"
    )
    done = installed("run", "rack.yaml", "--suite", "times.yaml", "--no-notify", "--json")
    checks = {
        check["name"]: (check["verdict"], check["reason"])
        for check in json.loads(done.stdout)["checks"]
    }
    assert checks["clock"] == ("pass", "the clocks of 1 nodes are right"), done.stderr
    broken = (
        "seatrial.checks: broken = site_checks.broken:BROKEN cannot be used: SystemExit('this "
        "package is broken')"
    )
    assert done.stderr.splitlines().count(broken) == 1
    (here / "rack.yaml").write_text("name: rack\nnodes: 1\nplatform:\n  kind: rack\n  row: 0\n")
    assert (
        "rack.yaml: line 5: platform.row: must be at least 1"
        in installed("render", "rack.yaml").stderr
    )
