"""What a probe reads from programs and from other nodes may be anything: it answers with a line, in little time."""

import json
import re
import sys
import time
from pathlib import Path

import pytest

from seatrial.remote.probes import facts, stream

LINE = 900_000  # characters, of the 1 MiB that a program may print
TOKEN = "5a" * stream.TOKEN_BYTES


def _printing(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", f"print({text})"]


def test_a_program_that_prints_a_long_line_has_no_version() -> None:
    started = time.process_time()
    assert facts.version_in(_printing(f"'1' * {LINE}")) is None
    assert time.process_time() - started < 5  # hours where it is searched as a whole


def test_a_version_is_read_from_the_line_that_has_it() -> None:
    assert facts.version_in(_printing(r"'mpirun\n(Open MPI) 4.1.4\nreport 2.0'")) == "4.1.4"
    assert facts.version_in(_printing("'OpenSSH_9.2p1 Debian-2, OpenSSL 3.0'"), facts.OPENSSH) == "9.2p1"


def _greeted(text: bytes, place: Path) -> list[object]:
    path = place / "greeting"
    path.write_bytes(text)
    with path.open("rb", buffering=0) as output:
        where: list[object] = stream.await_hello(output, 5)
        return where


@pytest.mark.parametrize(
    "answer",
    [
        *("7", "null", "{}", '{"a": 1}', "[]", "[" * 50_000, "[null, null, null]", "nonsense"),
        *(json.dumps(["10.0.0.1", port, TOKEN]) for port in (0, 65536, 10**9, "22", True, 1.5)),
        *(json.dumps(["10.0.0.1", 4000, token]) for token in ("", "zz", 5, TOKEN + "00")),
    ],
)
def test_a_peer_that_does_not_say_where_it_listens_is_an_answer(answer: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        _greeted(f"{stream.HELLO}{answer}\n".encode(), tmp_path)


def test_a_peer_that_greets_without_end_is_an_answer(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="prints more than"):
        _greeted(b"hello\n" * (1 << 18), tmp_path)


def test_a_login_may_greet_first(tmp_path: Path) -> None:
    where = ["10.0.0.1", 4000, TOKEN]
    assert _greeted(f"Welcome\n{stream.HELLO}{json.dumps(where)}\n".encode(), tmp_path) == where


UUID = "GPU-1b2c3d4e-0000-1111-2222-333344445555"


@pytest.mark.parametrize(
    ("line", "gpu"),
    [
        (f"{UUID}, NVIDIA H100 80GB HBM3, 1980", ("NVIDIA H100 80GB HBM3", 1980, UUID)),
        (f"{UUID}, NVIDIA H100 80GB HBM3, [N/A]", ("NVIDIA H100 80GB HBM3", None, UUID)),
        (f"{UUID}, NVIDIA H100 80GB HBM3", ("NVIDIA H100 80GB HBM3", None, UUID)),
        ("[N/A], NVIDIA H100 80GB HBM3, 1980", ("NVIDIA H100 80GB HBM3", 1980, "")),
        ("GPU-" + "0" * 1000 + ", x, 7", ("x", 7, "")),
        (f"{UUID}, a, b, 7", ("a, b", 7, UUID)),
        (f"{UUID}, x, 99999999999999999999", ("x", None, UUID)),
        ("", ("", None, "")),
    ],
)
def test_a_gpu_has_a_clock_where_the_driver_tells_it(line: str, gpu: tuple[str, int | None, str]) -> None:
    assert facts.gpu_in(line) == gpu


_NVIDIA_SMI = """#!/bin/sh
case "$1" in *clocks*) {with_clock};; *) echo "{uuid}, NVIDIA H100 80GB HBM3";; esac
"""


@pytest.mark.parametrize(
    ("with_clock", "gpus"),
    [
        (f"echo '{UUID}, NVIDIA H100 80GB HBM3, 1980'", [("NVIDIA H100 80GB HBM3", 1980, UUID)]),
        ("echo 'Field clocks.max.sm is not a valid field to query.'; exit 2", [("NVIDIA H100 80GB HBM3", None, UUID)]),
    ],
    ids=["with clock", "a driver that does not know the clock"],
)
def test_a_driver_that_does_not_know_the_clock_still_tells_the_gpus(
    with_clock: str, gpus: list[tuple[str, int | None, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(_NVIDIA_SMI.format(with_clock=with_clock, uuid=UUID))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert facts.gpu_models() == gpus


@pytest.mark.parametrize(
    ("serials", "count"),
    [
        ({"product_uuid": "4c4c4544-0042", "board_serial": ".7XK2.CN", "machine-id": "3d1219c7"}, 2),
        ({"product_uuid": "", "board_serial": "None", "machine-id": "3d1219c7"}, 1),
        ({"product_uuid": "", "board_serial": "0", "machine-id": ""}, 0),
    ],
    ids=["board", "installation", "nothing"],
)
def test_serials_leave_a_node_as_digests(serials: dict[str, str], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "first_line", lambda path: serials[path.rpartition("/")[2]])
    ids = facts.hardware_ids([])
    assert len(ids) == count
    assert all(re.fullmatch("[0-9a-f]{16}", hardware_id) for hardware_id in ids)
    assert len(facts.hardware_ids([UUID])) == 1 + count * (count == 2)
