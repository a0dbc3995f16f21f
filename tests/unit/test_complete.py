"""What a shell completes, by the protocol of click's scripts for shells."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.history import open_store
from tests.unit.history.stored import a_run


def completed(*words: str) -> list[str]:
    """The plain values that bash is given for the last of the words."""
    environment = {
        "_SEATRIAL_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["seatrial", *words]),
    }
    done = subprocess.run(
        [sys.executable, "-c", "from seatrial.cli.app import main; main()"],
        env={**os.environ, **environment, "COMP_CWORD": str(len(words))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [
        line.removeprefix("plain,")
        for line in done.stdout.splitlines()
        if line.startswith("plain,")
    ]


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (("run", "a.yaml", "--suite", "n"), ["nightly"]),
        (("run", "a.yaml", "--only", "c"), ["connectivity", "collectives"]),
        (("judge", "x.log", "--hardware", "H100-S"), ["H100-SXM"]),
        (("explain", "ssh-ref"), ["ssh-refused"]),
        (
            ("explain", "platform.que"),
            ["platform.queue", "platform.queue_timeout_s", "platform.queue_priority"],
        ),
        (("examples", "a4-g"), ["a4-gke"]),
        (("rep",), ["replay", "report"]),
    ],
)
def test_commands_fields_and_examples_complete_a_word(
    words: tuple[str, ...], some: list[str]
) -> None:
    assert set(some) <= set(completed(*words))
    assert all(value.startswith(words[-1]) for value in completed(*words))


def test_run_ids_and_cluster_names_complete_from_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{tmp_path}/history.db")
    with open_store() as store:
        run = a_run(1)
        store.save(run, tmp_path)
    assert completed("report", run.run_id[:2]) == [run.run_id]
    assert completed("baseline", "show", run.cluster[:1]) == [run.cluster]
    monkeypatch.setenv("SEATRIAL_HISTORY", "postgresql://nowhere.invalid/x")
    assert completed("report", run.run_id[:2]) == []
