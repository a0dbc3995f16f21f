"""Commands that read files of other people, from the command line to the exit status."""

import io
import json
import pickle
import random
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import click
import yaml

from seatrial.bundle import MANIFEST
from seatrial.bundle.pack import seal
from seatrial.certificate import CERTIFICATE
from seatrial.certificate.requirements import SHIPPED, SHIPPED_FOLDER
from seatrial.cli.app import app
from seatrial.history import open_store
from seatrial.model.errors import SeatrialError
from seatrial.tasks.record import measurements_csv, run_json
from tests import samples
from tests.fuzz.mutations import of_bytes
from tests.fuzz.target import Target, contents, line_of, one_of, text_of
from tests.unit.readers.healthy import OUTPUTS
from tests.unit.readers.test_flight_recorder import WATCHDOG
from tests.unit.readers.test_training import MEGATRON, RAS, TITAN
from tests.unit.readers.test_training_setup import MEGATRON_HEAD, NEW_MESH, TITAN_HEAD

GOLDEN = Path(__file__).parents[1] / "golden"
LOGS = contents(sorted((GOLDEN / "nccl-logs").glob("*.log")))
FIELD_CASES = contents(
    sorted(path for path in (GOLDEN / "field-cases").rglob("*") if path.is_file())
)
TRAINING = [
    text.encode()
    for text in (f"{MEGATRON}\n" * 30, f"{TITAN}\n" * 30, TITAN_HEAD, NEW_MESH, MEGATRON_HEAD)
]
REPORTS = [*(text.encode() for text in OUTPUTS.values()), "\n".join(RAS).encode(), *TRAINING]
STATUSES = range(4)  # docs/reference.md: pass, not pass, bad input, could not tell

ENTRY = {
    "process_group": ("0", "mesh_tp"),
    "collective_seq_id": 3,
    "profiling_name": "nccl:all_reduce",
    "is_p2p": False,
}
RECORDED = {"pg_config": {"0": {"name": "0", "ranks": "[0, 1]"}}, "entries": [ENTRY]}
DUMP = pickle.dumps(RECORDED, protocol=2)

PAIRS = [
    {
        "node_a": f"n{a}",
        "node_b": f"n{b}",
        "gb_s": 40.0 / (1 + 3 * (a == 1)),
        "size": "1M",
        "operation": "sendrecv",
    }
    for a in range(4)
    for b in range(a + 1, 4)
]
PAIRS_CSV = "node_a,node_b,gb_s,size,gpus\n" + "".join(
    f"{row['node_a']},{row['node_b']},{row['gb_s']},1M,9d c3|1b 43\n" for row in PAIRS
)


def called(*words: str) -> None:
    """Call a command.

    Its exit status is one of the contract, or it raises what `main` makes one line of.
    """
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            status = app.main(list(words), prog_name="seatrial", standalone_mode=False)
        except SystemExit as end:
            status = end.code
    assert (status or 0) in STATUSES, status


def _command(
    *words: str, name: str = "run.json", after: tuple[str, ...] = ()
) -> Callable[[Path], None]:
    """A reader that calls the command with the input under that name, as the last word but
    `after`.
    """

    def read(path: Path) -> None:
        called(*words, str(path.rename(path.with_name(name))), *after)

    return read


@cache
def _run_text() -> str:
    return run_json(samples.faulty_h100())


def _requirements(dice: random.Random) -> bytes:
    good = dice.choice(contents([SHIPPED_FOLDER / f"{name}.yaml" for name in SHIPPED]))
    if dice.random() < 0.3:
        return of_bytes(good, dice)
    return line_of(yaml.safe_load(good))(dice)


def _certify(path: Path) -> None:
    run = path.with_name("given.json")
    run.write_text(_run_text())
    called(
        "certify",
        str(run),
        "--requirements",
        str(path),
        "--out",
        str(path.with_name("certificate")),
    )


def _certified(path: Path) -> None:
    """A certificate whose document was changed, under a manifest that was made anew, as a forger
    would.
    """
    folder = path.with_name("certificate")
    for name, content in {**_certificate(), CERTIFICATE: path.read_bytes()}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    seal(folder, sorted(_certificate().keys() - {MANIFEST}), None)
    called("verify", str(folder))


@cache
def _certificate() -> dict[str, bytes]:
    """The files of a good certificate by their names."""
    with tempfile.TemporaryDirectory() as place:
        run, folder = Path(place) / "given.json", Path(place) / "certificate"
        run.write_text(_run_text())
        called("certify", str(run), "--requirements", "requirements", "--out", str(folder))
        return {
            str(file.relative_to(folder)): file.read_bytes()
            for file in folder.rglob("*")
            if file.is_file()
        }


def _changed_document(dice: random.Random) -> bytes:
    return line_of(json.loads(_certificate()[CERTIFICATE]))(dice)


def _history(path: Path) -> None:
    """A history file that is damaged, as the command that lists it opens it."""
    with open_store(f"sqlite:///{path}") as store:
        store.runs("h100-east")


@cache
def _stored() -> bytes:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "history.sqlite"
        with open_store(f"sqlite:///{file}") as store:
            store.save(samples.faulty_h100(), Path(place))
        return file.read_bytes()


_SHOWN = (SeatrialError, click.ClickException)
COMMANDS = (
    Target(
        "judge",
        one_of(text_of(*LOGS, *REPORTS, *FIELD_CASES), text_of(*REPORTS)),
        _command("judge"),
        _SHOWN,
    ),
    Target("parse", text_of(*LOGS), _command("parse"), _SHOWN),
    Target("training logs", text_of(*TRAINING), _command("judge"), _SHOWN),
    Target(
        "diagnose",
        one_of(text_of(DUMP), line_of(RECORDED)),
        _command("diagnose", name="trace_1"),
        _SHOWN,
    ),
    Target("watchdog", text_of(WATCHDOG.encode()), _command("diagnose", name="job.log"), _SHOWN),
    Target(
        "pairs",
        one_of(text_of(PAIRS_CSV.encode()), line_of(PAIRS)),
        _command("localize", name="p.csv"),
        _SHOWN,
    ),
    Target(
        "perftest of a pair",
        text_of(OUTPUTS["ib_write_bw"].encode()),
        _command("localize", name="n0--n1.log"),
        _SHOWN,
    ),
    Target("logs of pairs", text_of(*LOGS), _command("localize"), _SHOWN),
    Target("requirements", _requirements, _certify, _SHOWN),
    Target("certificate", _changed_document, _certified, _SHOWN),
    Target(
        "rows to replay",
        lambda dice: of_bytes(measurements_csv(samples.faulty_h100()).encode()[:40_000], dice),
        _command("replay", name="rows.csv"),
        _SHOWN,
    ),
    Target("history", lambda dice: of_bytes(_stored(), dice), _history, _SHOWN),
)
