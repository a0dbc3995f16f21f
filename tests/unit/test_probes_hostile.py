"""What a probe reads from programs and from other nodes may be anything: it answers with a line, in
little time.
"""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from seatrial.remote.answers import StreamListener, read_answer
from seatrial.remote.probes import facts, stream

LINE = 900_000  # characters, of the 1 MiB that a program may print
TOKEN = "5a" * stream.TOKEN_BYTES


def _printing(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", f"print({text})"]


def test_a_program_that_prints_a_long_line_has_no_version() -> None:
    started = time.process_time()
    assert facts.version_in(_printing(f"'1' * {LINE}")) is None
    assert time.process_time() - started < 5  # hours where it is searched as a whole


def test_version_is_read_from_the_first_line_that_has_one() -> None:
    assert facts.version_in(_printing(r"'mpirun\n(Open MPI) 4.1.4\nreport 2.0'")) == "4.1.4"
    assert (
        facts.version_in(_printing("'OpenSSH_9.2p1 Debian-2, OpenSSL 3.0'"), facts.OPENSSH)
        == "9.2p1"
    )


@pytest.mark.parametrize(
    "answer",
    [
        *("7", "null", "{}", "[]", "[" * 50_000, "nonsense"),
        *(
            json.dumps({"port": port, "token": TOKEN})
            for port in (0, 65536, 10**9, "22", True, 1.5)
        ),
        *(json.dumps({"port": 4000, "token": token}) for token in ("", "zz", 5, TOKEN + "00")),
    ],
)
def test_a_node_that_does_not_say_where_it_listens_measures_nothing(answer: str) -> None:
    with pytest.raises(ValueError):
        read_answer(StreamListener, answer)


@contextmanager
def _streams(
    address: str = "127.0.0.1",
) -> Iterator[tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]]:
    """The program stream.py: where it listens, and what it measures to a peer."""
    command = [sys.executable, "-S", stream.__file__, address]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin and program.stdout
        stdin, stdout = program.stdin, program.stdout
        listener: dict[str, Any] = json.loads(stdout.readline())

        def measure(peer: dict[str, Any]) -> dict[str, Any]:
            request = {
                "id": 7,
                "peer": {"address": "127.0.0.1", **peer},
                "max_bytes": 1 << 20,
                "max_seconds": 1,
            }
            print(json.dumps(request), file=stdin, flush=True)
            answer: dict[str, Any] = json.loads(stdout.readline())
            return answer

        yield listener, measure


@pytest.mark.parametrize(
    "answer", [b"[" * 50_000 + b"\n", b"nonsense\n", b"\xff\n", b"", b"7" * (1 << 17)]
)
def test_a_peer_that_answers_nonsense_is_an_error(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as peer, _streams() as (_, measure):

        def serve() -> None:
            there, _ = peer.accept()
            with there:
                there.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        measured = measure({"port": peer.getsockname()[1], "token": TOKEN})
        thread.join()
    assert (set(measured), measured["id"]) == ({"error", "id"}, 7)
    assert measured["error"]


def test_streams_without_the_token_are_refused() -> None:
    with _streams() as (listener, _), _streams() as (_, measure):
        for hello in (
            b"",
            b"GET / HTTP/1.1\r\n\r\n" * 4,
            bytes.fromhex(TOKEN) + stream.ORDER.pack(True, 1 << 20, 1.0),
        ):
            with socket.create_connection(("127.0.0.1", listener["port"])) as stranger:
                stranger.sendall(hello)
                with suppress(OSError):  # it has hung up already
                    stranger.shutdown(socket.SHUT_WR)
                with suppress(ConnectionResetError):
                    assert stranger.recv(1) == b""
        assert "error" in measure({"port": listener["port"], "token": TOKEN})
        measured = measure(listener)
    assert {way: measured[way]["bytes"] for way in ("out", "in")} == {"out": 1 << 20, "in": 1 << 20}


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
def test_gpu_model_clock_and_uuid_are_read_from_nvidia_smi(
    line: str, gpu: tuple[str, int | None, str]
) -> None:
    assert facts.gpu_in(line) == gpu


_NVIDIA_SMI = """#!/bin/sh
case "$1" in *clocks*) {with_clock};; *) echo "{uuid}, NVIDIA H100 80GB HBM3";; esac
"""


@pytest.mark.parametrize(
    ("with_clock", "gpus"),
    [
        (f"echo '{UUID}, NVIDIA H100 80GB HBM3, 1980'", [("NVIDIA H100 80GB HBM3", 1980, UUID)]),
        (
            "echo 'Field clocks.max.sm is not a valid field to query.'; exit 2",
            [("NVIDIA H100 80GB HBM3", None, UUID)],
        ),
    ],
    ids=["with clock", "a driver that does not know the clock"],
)
def test_a_driver_that_does_not_know_the_clock_still_tells_the_gpus(
    with_clock: str,
    gpus: list[tuple[str, int | None, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(_NVIDIA_SMI.format(with_clock=with_clock, uuid=UUID))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert facts.gpu_models() == gpus


@pytest.mark.parametrize(
    ("serials", "count"),
    [
        (
            {"product_uuid": "4c4c4544-0042", "board_serial": ".7XK2.CN", "machine-id": "3d1219c7"},
            2,
        ),
        ({"product_uuid": "", "board_serial": "None", "machine-id": "3d1219c7"}, 1),
        ({"product_uuid": "", "board_serial": "0", "machine-id": ""}, 0),
    ],
    ids=["board", "installation", "nothing"],
)
def test_hardware_serials_are_reported_as_digests(
    serials: dict[str, str], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "first_line", lambda path: serials[path.rpartition("/")[2]])
    ids = facts.hardware_ids([])
    assert len(ids) == count
    assert all(re.fullmatch("[0-9a-f]{16}", hardware_id) for hardware_id in ids)
    assert len(facts.hardware_ids([UUID])) == 1 + count * (count == 2)


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "192.0.2.1"])
def test_stream_server_listens_on_the_node_address_or_else_on_all(address: str) -> None:
    """It listens on all for a name, which may resolve to loopback in the node's /etc/hosts, or a
    translated address.
    """
    with _streams(address) as (listener, _), _streams() as (_, measure):
        assert "out" in measure(listener)
        is_narrow = address == "127.0.0.1"
        assert ("error" in measure(listener | {"address": "127.0.0.2"})) is is_narrow
