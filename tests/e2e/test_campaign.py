"""Campaigns on local nodes in the middle of which a part dies, a disk fills or the clock jumps."""

import json
import os
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Console, until
from tests.site import PATIENCE_S

PHASE: dict[str, Any] = {"name": "brief", "budget_s": 60, "devices": {"seconds": 0.1}}
MINUTES = 0.8
# Of nodes that are all there: what else this machine does may slow them
AT_WORK = {"pass", "degraded"}
CLOCK = Path(__file__).with_name("clock.c")
Process = subprocess.Popen[str]


@pytest.fixture
def soak(console: Console) -> Path:
    """A campaign of three phases or more."""
    path = console.folder / "soak.yaml"
    campaign = {"minutes": MINUTES, "every_s": 5, "phases": [{"suite": PHASE}]}
    path.write_text(yaml.safe_dump({"name": "soak", "campaign": campaign}))
    return path


def start(console: Console, cluster: Path, soak: Path) -> Process:
    return console.start("run", cluster, "--suite", soak, "--out", console.folder / "runs" / "soak")


def phases(console: Console) -> list[Path]:
    """The folders of the phases that have begun, in their order."""
    logs = [
        log for log in console.folder.glob("runs/*/logs/run.log") if log.parents[1].name != "soak"
    ]
    return [log.parents[1] for log in sorted(logs, key=lambda log: log.stat().st_ino)]


def until_phase(console: Console, process: Process, number: int, nodes: int) -> None:
    """Until the nodes of that phase are up; the first is 1."""

    def is_up() -> bool:
        begun = phases(console)
        line = f"{nodes} of {nodes} nodes answer"
        return len(begun) >= number and line in (begun[number - 1] / "logs" / "run.log").read_text()

    until(lambda: is_up() or process.poll() is not None)
    assert process.poll() is None, process.communicate()


def state(console: Console, cluster: Path) -> dict[str, Any]:
    """The campaign as `seatrial status` shows it."""
    finished = console.run("status", cluster, "--json")
    assert finished.status in (0, 1, 3), finished.output
    campaign: dict[str, Any] = json.loads(finished.out)["campaign"]
    return campaign


def verdict(console: Console) -> str:
    """Of the check `campaign`; too few phases for a drift are another check's."""
    document = json.loads((console.folder / "runs" / "soak" / "run.json").read_text())
    (check,) = [check for check in document["checks"] if check["name"] == "campaign"]
    return str(check["verdict"])


def processes(node: str, console: Console) -> list[int]:
    """The processes on a node that is up."""
    (space,) = [
        name
        for name in console.left()
        if name.endswith(f"-{node}") and Path("/run/netns", name).exists()
    ]
    listed = subprocess.run(
        ["ip", "netns", "pids", space], capture_output=True, text=True, check=True
    )
    return [int(pid) for pid in listed.stdout.split()]


def is_sshd(pid: int) -> bool:
    with suppress(OSError):  # it may have ended
        return Path(f"/proc/{pid}/comm").read_text() == "sshd\n"
    return False


def test_killed_campaign_is_resumed_by_the_same_command(console: Console, soak: Path) -> None:
    cluster = console.cluster(3)
    process = start(console, cluster, soak)
    until_phase(console, process, 2, nodes=3)
    process.kill()
    process.communicate()
    before = state(console, cluster)
    assert not before["ended"]
    assert before["phases"][0]["verdict"] == "pass"
    resumed = console.run(
        "run", cluster, "--suite", soak, "--out", console.folder / "runs" / "soak"
    )
    after = state(console, cluster)
    assert verdict(console) == "pass", resumed.output
    assert after["ended"]
    assert after["campaign_id"] == before["campaign_id"]
    assert after["phases"][0] == before["phases"][0]
    assert (after["phases"][1]["code"], after["phases"][1]["seconds"]) == ("run-killed", 0)


def test_a_campaign_goes_on_without_its_server(console: Console, soak: Path) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "SEATRIAL_TEMPORARY_SERVER"):
        del console.environment[name]  # it is to have one of its own
    cluster = console.cluster(3)
    process = start(console, cluster, soak)
    until_phase(console, process, 2, nodes=3)
    children = ["ps", "-o", "pid=,args=", "--ppid", str(process.pid)]
    listed = subprocess.run(children, capture_output=True, text=True, check=True)
    (server,) = [line.split()[0] for line in listed.stdout.splitlines() if " -P -c " in line]
    os.kill(int(server), signal.SIGKILL)
    output, errors = process.communicate(timeout=2 * PATIENCE_S)
    assert verdict(console) in AT_WORK, f"{output}\n{errors}"
    campaign = state(console, cluster)
    assert campaign["ended"]
    assert {phase["verdict"] for phase in campaign["phases"]} <= AT_WORK


@pytest.mark.parametrize("dies", [lambda pid: True, is_sshd], ids=["node", "sshd"])
def test_a_node_that_dies_is_left_out_and_the_others_go_on(
    console: Console, soak: Path, dies: Callable[[int], bool]
) -> None:
    cluster = console.cluster(4)
    process = start(console, cluster, soak)
    until_phase(console, process, 1, nodes=4)
    for pid in filter(dies, processes("node-2", console)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    output, errors = process.communicate(timeout=2 * PATIENCE_S)
    assert (process.returncode, verdict(console)) == (1, "fail"), f"{output}\n{errors}"
    campaign = state(console, cluster)
    assert [out["node"] for out in campaign["left_out"]] == ["node-2"]
    assert campaign["ended"]
    others = campaign["phases"][1:]
    assert others
    assert {phase["verdict"] for phase in others} <= AT_WORK
    assert "node-2" in output


@pytest.fixture
def small_disk(console: Console) -> Iterator[Path]:
    """The folder of all runs, on a file system of 64 MiB."""
    folder = console.folder / "runs"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64M", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_ends_no_campaign(console: Console, soak: Path, small_disk: Path) -> None:
    """A phase that cannot begin counts for nothing, and is tried again."""
    cluster = console.cluster(2)
    process = start(console, cluster, soak)
    until_phase(console, process, 1, nodes=2)
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        room = os.statvfs(small_disk)
        os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_bsize)
    until(
        lambda: any(
            not phase["seconds"] and phase["verdict"]
            for phase in state(console, cluster)["phases"][1:]
        )
    )
    filler.unlink()
    output, errors = process.communicate(timeout=PATIENCE_S)
    campaign = state(console, cluster)
    assert campaign["ended"], errors
    assert {phase["verdict"] for phase in campaign["phases"] if phase["seconds"]} == {"pass"}
    assert verdict(console) == "pass", f"{output}\n{errors}"


@pytest.fixture(scope="session")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose wall clock jumps, for LD_PRELOAD."""
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    if not (compiler := shutil.which("cc")):
        pytest.skip("no C compiler is here")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, CLOCK], check=True)
    return library


@pytest.mark.parametrize("days", [3, -3])
def test_a_clock_that_jumps_does_not_count_as_time_of_the_campaign(
    console: Console, soak: Path, clock: Path, days: int
) -> None:
    ahead = console.folder / "ahead"
    ahead.write_bytes(struct.pack("q", 0))
    console.environment |= {"LD_PRELOAD": str(clock), "CLOCK_FILE": str(ahead)}
    cluster = console.cluster(2)
    process = start(console, cluster, soak)
    until_phase(console, process, 1, nodes=2)
    with ahead.open("r+b") as file:
        file.write(struct.pack("q", days * 24 * 3600))
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert verdict(console) == "pass", f"{output}\n{errors}"
    campaign = state(console, cluster)
    assert campaign["ended"]
    assert MINUTES * 60 <= campaign["spent_s"] < PATIENCE_S
    assert len(campaign["phases"]) > 1


def test_a_node_that_slows_in_the_middle_is_named_by_drift(console: Console) -> None:
    """Ten minutes, of which a node gets a third of its processor from the fifth on."""
    soak = console.folder / "soak.yaml"
    phase = {**PHASE, "devices": {"seconds": 0.2}}
    campaign = {"minutes": 10, "every_s": 5, "phases": [{"suite": phase}]}
    soak.write_text(yaml.safe_dump({"name": "soak", "campaign": campaign}))
    cluster = console.cluster(4, faults=[{"node": "node-2", "cpu_share": 0.35, "minute": 5}])
    process = start(console, cluster, soak)
    output, errors = process.communicate(timeout=1200)
    assert process.returncode == 1, f"{output}\n{errors}"
    document = json.loads((console.folder / "runs" / "soak" / "run.json").read_text())
    (drift,) = [check for check in document["checks"] if check["name"] == "drift"]
    assert drift["verdict"] == "fail", output
    assert [suspect["name"] for suspect in document["suspects"]] == ["node-2"]
    assert re.search(
        r"\nfail: node-2 \(90 % sure\): .* on node-2 lost \d\d % from the begin", output
    )
    # Most phases of the second half name it, too
    phases = state(console, cluster)["phases"]
    late = [phase for phase in phases if phase["began_s"] > 320]
    runs = console.folder / "runs"
    results = [json.loads((runs / phase["run_id"] / "run.json").read_text()) for phase in late]
    named = [[suspect["name"] for suspect in result["suspects"]] for result in results]
    assert named.count(["node-2"]) > len(late) / 2 > 3, named
    early = [phase for phase in phases if phase["began_s"] < 290]
    assert {phase["verdict"] for phase in early} <= AT_WORK, phases


def test_a_certificate_of_a_campaign_is_verified_and_refused_when_altered(
    console: Console, soak: Path
) -> None:
    cluster = console.cluster(2)
    start(console, cluster, soak).communicate(timeout=PATIENCE_S)
    assert verdict(console) == "pass"
    assert (
        "memory copy, GB/s, in brief"
        in (console.folder / "runs" / "soak" / "report.html").read_text()
    )
    requirements = console.folder / "requirements.yaml"
    hours = {
        "text": "The cluster is at work.",
        "check": "campaign",
        "metric": "campaign_hours",
        "unit": "h",
    }
    copy = {
        "text": "Memory is copied.",
        "check": "devices",
        "metric": "memory_copy",
        "unit": "GB/s",
    }
    listed = [
        {"id": "HOURS", **hours, "limit": {"at_least": MINUTES / 60}},
        {"id": "3-DAYS", **hours, "limit": {"at_least": 72}},
        {"id": "COPY", **copy, "limit": {"at_least": 0}},
    ]
    requirements.write_text(yaml.safe_dump({"name": "soak", "requirements": listed}))
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", console.folder / "key"], check=True
    )
    arguments = ("--requirements", requirements, "--sign", console.folder / "key", "--json")
    runs = [path.parent for path in console.folder.glob("runs/*/run.json")]
    made = console.run("certify", *runs, *arguments)
    assert made.status == 1, made.output
    verdicts = {row["id"]: row["verdict"] for row in json.loads(made.out)["requirements"]}
    assert verdicts == {"HOURS": "met", "3-DAYS": "not met", "COPY": "met"}
    verify = ("verify", "certificate", "--key", console.folder / "key.pub")
    assert console.run(*verify).status == 0
    evidence, *_ = sorted(console.folder.glob("certificate/evidence/**/run.json"))
    evidence.write_bytes(evidence.read_bytes().replace(b"run_id", b"run_ib", 1))
    refused = console.run(*verify)
    assert refused.status != 0
    assert "run.json" in refused.output
