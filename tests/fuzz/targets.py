"""Everything that reads what nodes, files and other people hand in, with good input to begin
from.
"""

import json
import random
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from seatrial.bundle.pack import pack
from seatrial.bundle.verify import verify
from seatrial.causes import classify
from seatrial.causes.xid import xid_finding
from seatrial.checks.failures import classify_failure
from seatrial.checks.lost_ranks import lost_ranks
from seatrial.checks.suites import load_suite
from seatrial.checks.training.check import RankSums
from seatrial.checks.training.parts import disputed
from seatrial.checks.training.result import read_event
from seatrial.checks.training.stuck import read_stuck
from seatrial.config.cluster import load_cluster
from seatrial.model.result import Check
from seatrial.nccl import SweepReader, parse_file, render
from seatrial.readers.flight_recorder import NoDump, late_ranks, read_dump
from seatrial.readers.parts import read_file
from seatrial.remote.answers import (
    Facts,
    NodeAnswer,
    PeerAnswer,
    StreamAnswer,
    StreamError,
    StreamListener,
    read_answer,
)
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.probes import facts, stream
from seatrial.remote.ranks import rank_line, reported_rank
from seatrial.report.markdown import summary
from seatrial.runs.at_work import read_record
from seatrial.runs.load import load_result
from seatrial.tasks.record import measurements_csv, run_json
from seatrial.text.redact import Redactor, Secrets
from tests import samples
from tests.fuzz.commands import COMMANDS, DUMP, LOGS
from tests.fuzz.mutations import dumped, of_bytes, of_document
from tests.fuzz.schedulers import SCHEDULERS
from tests.fuzz.target import Target, line_of, text_of
from tests.network_log import transport
from tests.unit.collectives.fake_mpirun import make_testbed
from tests.unit.readers.healthy import OUTPUTS

ROOT = Path(__file__).parents[2]
SECRET = "correct-horse-battery"
SECRETS = Secrets.of({"API_TOKEN": SECRET, "DATABASE_URL": "postgresql://u:pa55word@db/x"})
FACTS = {
    "hostname": "node-0",
    "cpus": 8,
    "memory_gb": 64.0,
    "gpus": 8,
    "gpu_model": "H100",
    "gpu_clock_mhz": 1980,
    "hardware_ids": ["0123456789abcdef"],
    "cpu_model": "AMD EPYC",
    "architecture": "x86_64",
    "mpirun": "/usr/bin/mpirun",
    "sshd": "",
    "nccl_tests": "",
    "versions": {"openmpi": "4.1.4", "torch": None},
}
GROUP = {
    "id": "0",
    "name": "default_pg",
    "ranks": [0, 1],
    "collective": 3,
    "operation": "gloo:all_reduce",
}
STUCK = {
    "event": "stuck",
    "rank": 1,
    "host": "node-1",
    "step": 3,
    "groups": [GROUP],
    "stack": ["a.py:1 f"],
    "waits": True,
    "gpu": {"busy_percent": 100.0, "power_w": 120.0},
}
PEER = {"peer": "node-1", "error": ""}
RESULT = {"time": 50.0, "alg_bw": 20.9, "bus_bw": 36.7, "nwrong": 0.0}
JSON_LOG = {
    "version": 3,
    "args": ["all_reduce_perf", "-J", "out.json"],
    "env": ["PATH=/usr/bin"],
    "config": {
        "nthreads": 1,
        "ngpus": 4,
        "devices": [{"rank": 0, "group": 0, "hostname": "node-0", "device": 0}],
    },
    "results": [
        {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "-1"}
        | {"out_of_place": RESULT, "in_place": RESULT}
        for size in (8, 1024, 1 << 20)
    ],
    "out_of_bounds": {"count": 0, "okay": "true"},
    "average_bus_bandwidth": {"bandwidth": 36.3, "okay": "unchecked"},
    "errors": [""],
}
KERNEL_LOG = b"""\
Jun  3 10:00:00 node-0 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=7, GPU has fallen off the bus.
Jun  3 10:00:01 node-0 kernel: NVRM: Xid (PCI:0000:1b:00): 94, pid='<unknown>', name=<unknown>, Contained: SM (0x1)
[  42.0] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error
"""
VERSIONS = b"""\
mpirun (Open MPI) 4.1.4
OpenSSH_9.2p1 Debian-2+deb12u3, OpenSSL 3.0.15 3 Sep 2024
"""
LISTENER = {"port": 40123, "token": "5a" * stream.TOKEN_BYTES}
TRAFFIC = {
    "id": 1,
    "out": {"bytes": 1 << 20, "seconds": 0.5},
    "in": {"bytes": 1 << 20, "seconds": 0.5},
}
EVENT = {
    "event": "step",
    "step": 1,
    "loss": 2.5,
    "seconds": 0.1,
    "rank": 0,
    "host": "node-0",
    "ranks": [{"rank": 0}],
}


@cache
def _documents(folder: str) -> list[Any]:
    return [yaml.safe_load(path.read_text()) for path in sorted((ROOT / folder).glob("*.yaml"))]


def _file_of(folder: str) -> Callable[[random.Random], bytes]:
    def make(dice: random.Random) -> bytes:
        good = dice.choice(_documents(folder))
        if dice.random() < 0.3:
            return of_bytes(yaml.safe_dump(good).encode(), dice)
        return dumped(of_document(good, dice))

    return make


def _log(dice: random.Random) -> bytes:
    return of_bytes(dice.choice(LOGS), dice)


def _read_log(path: Path) -> None:
    lines = path.read_text(errors="replace").splitlines()
    assert len(classify(lines)) <= 64
    transport(lines)
    reader = SweepReader()
    for line in lines:
        reader.feed(line)
    _read_sweeps(path)


def _read_sweeps(path: Path) -> None:
    """What is read is JSON, and a table for people."""
    sweeps = parse_file(path)
    assert json.loads(json.dumps([sweep.to_dict() for sweep in sweeps], allow_nan=False))
    assert {sweep.outcome for sweep in sweeps} <= {"ok", "failed", "truncated", "error"}
    assert render(sweeps)


def _read_kernel_log(path: Path) -> None:
    for line in path.read_text(errors="replace").splitlines():
        xid_finding(line)


def _tools(dice: random.Random) -> bytes:
    """Reports of several tools, one after another or within each other, and broken."""
    outputs = [dice.choice(list(OUTPUTS.values())).encode() for _ in range(dice.randint(1, 4))]
    return of_bytes(b"".join(outputs), dice)


def _read_tools(path: Path) -> None:
    """Each part is a sweep or a check whose reason is printable."""
    for part in read_file(path, "log"):
        if isinstance(part, Check):
            assert part.reason.sentence.isprintable()
        else:
            assert json.dumps(part.to_dict(), allow_nan=False)


def _read_versions(path: Path) -> None:
    """As facts.py reads what a node's programs print."""
    facts.version_in(["cat", str(path)])
    facts.version_in(["cat", str(path)], facts.OPENSSH)


def _read_peer(path: Path) -> None:
    """As stream.py reads what a peer says."""
    stream.read_json(path.read_bytes())  # type: ignore[no-untyped-call]


@cache
def _run() -> dict[str, Any]:
    good: dict[str, Any] = json.loads(run_json(samples.faulty_h100()))
    return good


def _run_json(dice: random.Random) -> bytes:
    return (
        of_bytes(dumped(_run()), dice) if dice.random() < 0.2 else dumped(of_document(_run(), dice))
    )


def _read_run(path: Path) -> None:
    summary(load_result(path))


def _csv(dice: random.Random) -> bytes:
    return of_bytes(measurements_csv(samples.faulty_h100()).encode(), dice)


def _read_csv(path: Path) -> None:
    (path.parent / "measurements.csv").write_bytes(path.read_bytes())
    (path.parent / "run.json").write_text(run_json(samples.faulty_h100()))
    load_result(path.parent)


@cache
def _packed() -> bytes:
    with tempfile.TemporaryDirectory() as place:
        folder, target = Path(place) / "run", Path(place) / "bundle.tar.gz"
        (folder / "logs").mkdir(parents=True)
        (folder / "run.json").write_text(run_json(samples.faulty_h100()))
        (folder / "logs" / "all_reduce.log").write_text("8 2 float sum\n" * 100)
        pack(samples.faulty_h100(), folder, target)
        return target.read_bytes()


def _bundle(dice: random.Random) -> bytes:
    """Broken as it lies there, or within its compression."""
    import gzip

    if dice.random() < 0.3:
        return of_bytes(_packed(), dice)
    return gzip.compress(of_bytes(gzip.decompress(_packed()), dice), 1)


def _answer_as(*models: type[NodeAnswer]) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        for line in path.read_text(errors="surrogateescape").splitlines() or [""]:
            for model in models:
                with suppress(ValueError):  # what a caller turns into the node's problem
                    read_answer(model, line)

    return read


RECORD = {
    "pid": 4711,
    "started": 123456,
    "boot": "b" * 36,
    "out": "/runs/x",
    "flow_run": str(uuid.UUID(int=7)),
}
RANKS = b"""\
[1,0]<stdout>:{"event": "step", "step": 0, "loss": 4.0, "step_time_ms": 10.0}
[1,1]<stdout>:seatrial-rank: 1 on node-1
[1,1]<stdout>:{"event": "part", "rank": 1, "host": "node-1", "wrong": 0, "first_wrong": null}
 2: words of a rank that srun has started
[1,2]<stderr>:training probe: node-2 rank 2: RuntimeError: Connection closed by peer [10.0.0.2]:2732
The first process to do so was:

  Process name: [[13201,1],1]
  Exit code:    3
"""


def _read_ranks(path: Path) -> None:
    """As mpirun prints the lines of ranks, to the reason of their failure."""
    lines = tuple(rank_line(line) for line in path.read_text(errors="replace").split("\n"))
    for line in lines:
        reported_rank(line)
    result = MpiResult(1, lines, 1.0, rank_nodes=("node-0", "node-1", "node-2"))
    classify_failure(result, began=False)
    lost_ranks(result, make_testbed(3))
    disputed(result, [RankSums(rank=1, host="", wrong=0, first_wrong=None)])


def _read_record(path: Path) -> None:
    """The record of a run at work."""
    (path.parent / "record.json").write_bytes(path.read_bytes())
    path.parent.chmod(0o700)
    (path.parent / "record.json").chmod(0o600)
    read_record(path.parent)


def _read_events(path: Path) -> None:
    for line in path.read_text(errors="replace").splitlines():
        read_event(line)


def _read_dump(path: Path) -> None:
    with suppress(NoDump):
        late_ranks([read_dump(path.read_bytes(), rank) for rank in range(2)], 3)


def _read_stuck(path: Path) -> None:
    late_ranks(read_stuck(path.read_text(errors="replace").splitlines()), 3)


def _log_with_secret(dice: random.Random) -> bytes:
    data = _log(dice)
    at = dice.randrange(len(data) + 1)
    return data[:at] + SECRET.encode() + data[at:]


def _redact(path: Path) -> None:
    """As a whole, and in pieces as it is printed."""
    text = path.read_text(errors="surrogateescape")
    redactor = Redactor(SECRETS)
    pieces = [redactor.feed(text[at : at + 4093]) for at in range(0, len(text), 4093)]
    for clean in (SECRETS.out_of_text(text), "".join([*pieces, redactor.end()])):
        if SECRET in clean:
            raise AssertionError("the secret is still there")


TARGETS = (
    Target("cluster file", _file_of("deployments/clusters"), load_cluster),
    Target("suite file", _file_of("seatrial/checks/suites"), lambda path: load_suite(str(path))),
    Target("log", _log, _read_log),
    Target("-J log", line_of(JSON_LOG), _read_sweeps),
    Target("outputs of tools", _tools, _read_tools),
    Target("kernel log", text_of(KERNEL_LOG), _read_kernel_log),
    Target("versions", text_of(VERSIONS), _read_versions),
    Target(
        "peer", line_of({"bytes": 1 << 20, "seconds": 0.5}), _read_peer, (ValueError,)
    ),  # which stream.py answers with
    Target("facts", line_of(FACTS), _answer_as(Facts)),
    Target(
        "answers",
        line_of(PEER, LISTENER, TRAFFIC),
        _answer_as(PeerAnswer, StreamListener, StreamAnswer, StreamError),
    ),
    Target("training events", line_of(EVENT), _read_events),
    Target("flight recorder", text_of(DUMP), _read_dump),
    Target("stuck ranks", line_of(STUCK), _read_stuck),
    Target("ranks", text_of(RANKS), _read_ranks),
    Target("record", line_of(RECORD), _read_record),
    Target("run.json", _run_json, _read_run),
    Target("measurements.csv", _csv, _read_csv),
    Target("bundle", _bundle, verify),
    Target("redaction", _log_with_secret, _redact),
    *COMMANDS,
    *SCHEDULERS,
)
