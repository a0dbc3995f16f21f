"""How ranks find themselves and each other, and what they say where they cannot."""

import socket
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from seatrial.remote.probes import probe
from tests.integration.probes.conftest import Load
from tests.integration.probes.launched import finish, forked, meeting, start, sweep_argv


@pytest.fixture
def rendezvous(load: Load) -> ModuleType:
    return load("rendezvous")


def test_a_port_in_use_is_reported_in_one_line() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        first = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
        done = forked("collective", [[*sweep_argv("all_reduce"), *meeting(port)]], [first])
    assert done.status == 3
    (line,) = done.lines
    assert line.endswith(f"rank 0: cannot start: port {port} on 127.0.0.1 is already in use")


def test_a_rank_joins_once_rank_0_listens(
    rendezvous: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not before: torch would try again only after up to a second."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # is put back, too
    joined = threading.Event()
    monkeypatch.setattr(rendezvous.dist, "init_process_group", lambda *_, **__: joined.set())
    monkeypatch.setattr(rendezvous, "announce", lambda *_: None)
    with socket.socket() as rank_0:
        rank_0.bind(("127.0.0.1", 0))  # from here on nobody else has the port
        refused, dial = threading.Semaphore(0), socket.create_connection

        def counted(*address: Any, **options: Any) -> socket.socket:
            try:
                return dial(*address, **options)
            except ConnectionRefusedError:
                refused.release()
                raise

        monkeypatch.setattr(rendezvous.socket, "create_connection", counted)
        options = SimpleNamespace(
            network="lo", master_addr="127.0.0.1", master_port=rank_0.getsockname()[1], timeout_s=60
        )
        rank_1 = SimpleNamespace(rank=1, host="node-1", world_size=2)
        rank = threading.Thread(target=rendezvous.join, args=(rank_1, options))
        rank.start()
        assert refused.acquire(timeout=60)
        assert refused.acquire(timeout=60)  # it has tried again
        assert not joined.is_set()
        rank_0.listen()
        rank.join(60)
    assert joined.is_set()


def test_one_rank_needs_no_port(rendezvous: ModuleType) -> None:
    with socket.create_server(("", 0)) as taken:
        options = SimpleNamespace(
            master_addr="127.0.0.1", master_port=taken.getsockname()[1], timeout_s=60
        )
        rendezvous.join(SimpleNamespace(rank=0, host="node-0", world_size=1), options)
    try:
        assert rendezvous.share("alone") == ["alone"]
    finally:
        rendezvous.dist.destroy_process_group()


def test_missing_torch_is_reported() -> None:
    argv = [sys.executable, "-S", "-E", str(probe("training")), *meeting()]  # -S: no site-packages
    done = finish(start(argv), time.monotonic())
    assert done.status == 3
    assert "cannot start: torch is missing for" in done.lines[-1]


def test_the_interface_is_found_by_network(rendezvous: ModuleType) -> None:
    addresses = {"lo": "127.0.0.1", "eth0": "10.1.2.3", "eth1": "192.168.7.9"}
    assert rendezvous.interface("192.168.7.0/24", "x", addresses) == "eth1"
    assert rendezvous.interface("ib0", "x", addresses) == "ib0"
    assert rendezvous.interface(None, "127.0.0.1", addresses) == "lo"
    with pytest.raises(
        rendezvous.CannotStart, match=r"no interface has an address in 10\.9\.0\.0/16; here: lo 127"
    ):
        rendezvous.interface("10.9.0.0/16", "x", addresses)
    assert rendezvous.addresses()["lo"] == "127.0.0.1"
    assert Path(
        f"/sys/class/net/{rendezvous.interface('127.0.0.0/8', 'x', rendezvous.addresses())}"
    ).exists()
