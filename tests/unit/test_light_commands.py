"""`judge`, `explain` and `localize` run where only a few packages are, and without what POSIX alone
has.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

LOG = str(Path(__file__).parents[1] / "golden" / "nccl-logs" / "wh8_h100_g4_allgather_new.log")
ALLOWED = {"yaml", "click", "numpy", "pydantic", "rich"}
OF_THEM = {
    "annotated_types",
    "pydantic_core",
    "typing_extensions",
    "typing_inspection",
    "markdown_it",
    "pygments",
    "mdurl",
}
COMMANDS = {
    "judge": (["judge", LOG], 0, {"click"}),
    "judge --json": (["judge", LOG, "--json"], 0, {"click"}),
    "localize": (["localize", LOG], 3, ALLOWED),
    "explain a code": (["explain", "ssh-refused"], 0, ALLOWED),
    "explain a field": (["explain", "platform.queue"], 0, ALLOWED),
}
PROGRAM = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
for name in {absent!r}:
    sys.modules[name] = None
before = set(sys.modules)
from seatrial.cli.app import main
sys.argv = ["seatrial", *{arguments!r}]
status = 0
with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
    try:
        main()
    except SystemExit as end:
        status = end.code
names = {{name.partition(".")[0] for name in set(sys.modules) - before if getattr(sys.modules[name], "__file__", None)}}
tops = sorted(names - sys.stdlib_module_names - {{"seatrial"}})
print(json.dumps([status or 0, tops, sorted(name for name in sys.modules if name.startswith("seatrial.remote"))]))
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_light_commands_import_few_packages_and_no_ssh(command: str) -> None:
    arguments, status, allowed = COMMANDS[command]
    program = PROGRAM.format(
        absent=["resource", "pwd", "grp", "paramiko", "prefect", "pandas"], arguments=arguments
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    ended, tops, remote = json.loads(done.stdout)
    assert ended == status, done.stderr
    assert {name for name in tops if not name.startswith("_")} <= allowed | OF_THEM
    assert "seatrial.remote.ssh" not in remote or command == "explain a field", (
        "sections stand beside their checks"
    )
