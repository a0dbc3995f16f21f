"""Memory and time that the largest and most hostile inputs take: `python benchmarks/hostile_input.py [--log-mb N]`.

Each case runs in a process of its own; memory is the most that was resident, Python and imports included.
Measured (processor time; Python 3.11, one core of a busy machine):

    parse    200 MB of real logs              66 s   163 MiB
    redact   the same                         10 s    16 MiB
    verify   a bundle that holds 4 GiB         0 s    19 MiB
    report   run.json of 4,000 nodes, 2 MB   1.5 s    56 MiB
"""

import argparse
import gzip
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "tests" / "golden" / "nccl-logs"
sys.path.insert(0, str(ROOT))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log-mb", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=4000)
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)  # in a process of its own: case and file
    asked = parser.parse_args()
    if asked.case:
        measure(CASES[asked.case[0]], Path(asked.case[1]))
        return
    with tempfile.TemporaryDirectory() as place:
        log, bomb, run = (Path(place) / name for name in ("all_reduce.log", "bomb.tar.gz", "run.json"))
        write_log(log, asked.log_mb)
        write_bomb(bomb)
        write_run(run, asked.nodes)
        for case, path in zip(CASES, (log, log, bomb, run), strict=True):
            print(f"{case:8} {path.stat().st_size / 1e6:7.1f} MB", end="  ", flush=True)
            subprocess.run([sys.executable, __file__, "--case", case, str(path)], check=True)


def measure(read: Callable[[Path], object], path: Path) -> None:
    """Print processor time and memory that reading takes, and how it ended."""
    started = time.process_time()
    end = read(path)
    seconds = time.process_time() - started
    status = Path("/proc/self/status").read_text()  # getrusage would count the memory of whoever started this
    memory = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(f"{seconds:7.1f} s  {memory:6.0f} MiB  {end}")


def parse(path: Path) -> str:
    from seatrial.nccl import parse_file

    return f"{len(parse_file(path))} sweeps"


def redact(path: Path) -> str:
    from seatrial.text.redact import Redactor, Secrets

    redactor, characters = Redactor(Secrets(("correct-horse-battery",))), 0
    with path.open(errors="replace") as file:
        while text := file.read(64 * 1024):
            characters += len(redactor.feed(text))
    return f"{characters + len(redactor.end()):,} characters"


def verify_bomb(path: Path) -> str:
    from seatrial.bundle.verify import verify
    from seatrial.model.errors import InputError

    try:
        return verify(path).problem
    except InputError as error:
        return str(error).removeprefix(f"{path}: ")


def report(path: Path) -> str:
    from seatrial.report.html import report_html
    from seatrial.runs.load import load_result

    return f"{len(report_html(load_result(path))):,} characters of HTML"


CASES: dict[str, Callable[[Path], str]] = {"parse": parse, "redact": redact, "verify": verify_bomb, "report": report}


def write_log(path: Path, megabytes: int) -> None:
    """Real logs, one after the other, until they are that long."""
    text = b"".join(log.read_bytes() for log in sorted(LOGS.glob("*.log")))
    with path.open("wb") as file:
        while file.tell() < megabytes * 1_000_000:
            file.write(text)


def write_bomb(path: Path) -> None:
    """A manifest of 4 GiB of zeros, in some 4 MB."""
    info = tarfile.TarInfo("run/SHA256SUMS")
    info.size = 4 << 30
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(info.size >> 20):
            file.write(bytes(1 << 20))


def write_run(path: Path, nodes: int) -> None:
    """A run of so many nodes: what each is, and its step time as it was judged."""
    from tasks.record import run_json
    from tests import samples

    document = json.loads(run_json(samples.faulty_h100()))
    node, check = document["nodes"][0], next(check for check in document["checks"] if check["judgements"])
    judgement = check["judgements"][0]
    names = [f"node-{n}" for n in range(nodes)]
    document["nodes"] = [node | {"name": name} for name in names]
    check["judgements"] = [judgement | {"subject": {"kind": "node", "name": name}} for name in names]
    path.write_text(json.dumps(document))


if __name__ == "__main__":
    main()
