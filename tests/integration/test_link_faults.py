"""Faults of links and switches, and faults that begin after a check, by what real TCP streams
carry.
"""

import os
import subprocess
import sys

import pytest

from seatrial.model.errors import LaunchError, RemoteError
from seatrial.model.testbed import Testbed
from seatrial.remote.ssh import connected
from tests.integration.conftest import LocalTestbed
from tests.integration.test_reach import in_node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root enters namespaces by name")

_RECEIVER = """
import socket, time
with socket.create_server(("", 7777)) as server:
    print("ready", flush=True)
    stream, _ = server.accept()
    got = len(stream.recv(1))
    began = time.monotonic()
    while data := stream.recv(1 << 20):
        got += len(data)
    print(got / 1e6 / (time.monotonic() - began))
"""
_SENDER = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 7777), 20) as stream:
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        stream.sendall(bytes(1 << 16))
"""


def mb_s(testbed: Testbed, source: int, target: int) -> float:
    """What a TCP stream carries, in MB/s."""
    enter = [f"seatrial-{testbed.run_id}-node-{i}" for i in (source, target)]
    receive, send = (
        ["ip", "netns", "exec", namespace, sys.executable, "-c", program]
        for namespace, program in zip(reversed(enter), (_RECEIVER, _SENDER), strict=True)
    )
    with subprocess.Popen(receive, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout and receiver.stdout.readline() == "ready\n"
        subprocess.run([*send, testbed.nodes[target].address], check=True)
        return float(receiver.stdout.read())


def test_a_slow_link_is_slow_between_its_ends_alone(local_testbed: LocalTestbed) -> None:
    faults = [
        {"link": ["node-0", "node-3"], "rate": "50mbit"},
        {"link": ["node-1", "node-3"], "rate": "100mbit"},
    ]
    with local_testbed(nodes=4, faults=faults) as (_, testbed):
        assert 3 < mb_s(testbed, 0, 3) < 7 and 3 < mb_s(testbed, 3, 0) < 7
        assert 8 < mb_s(testbed, 3, 1) < 14
        assert mb_s(testbed, 0, 1) > 40 < mb_s(testbed, 2, 3)


def test_a_link_that_loses_packets_is_slow_between_its_ends_alone(
    local_testbed: LocalTestbed,
) -> None:
    with local_testbed(nodes=3, faults=[{"link": ["node-0", "node-1"], "loss": "10%"}]) as (
        _,
        testbed,
    ):
        assert mb_s(testbed, 0, 1) < mb_s(testbed, 0, 2) / 3


def test_an_uplink_is_shared_by_all_streams_over_it(local_testbed: LocalTestbed) -> None:
    with local_testbed(nodes=4, faults=[{"switch": ["node-2", "node-3"], "uplink": "100mbit"}]) as (
        _,
        testbed,
    ):
        assert 8 < mb_s(testbed, 0, 2) < 14 and 8 < mb_s(testbed, 3, 1) < 14
        assert mb_s(testbed, 0, 1) > 40 < mb_s(testbed, 2, 3)


def test_faults_begin_only_after_the_check_they_name(local_testbed: LocalTestbed) -> None:
    later = {"after": "connectivity"}
    faults = [
        {"node": "node-1", "rate": "80mbit", **later},
        {"link": ["node-0", "node-2"], "rate": "40mbit", **later},
        {"switch": ["node-3", "node-4"], "uplink": "160mbit", **later},
        {"node": "node-5", "sshd": "stopped", **later},
    ]
    with local_testbed(nodes=6, faults=faults) as (_, testbed):
        testbed.after_check("inventory")
        assert min(mb_s(testbed, *ends) for ends in ((1, 0), (0, 2), (3, 0))) > 40
        with connected(testbed, testbed.nodes[5], 10):
            testbed.after_check("connectivity")
        assert 6 < mb_s(testbed, 1, 0) < 11
        assert 2 < mb_s(testbed, 0, 2) < 6
        assert 14 < mb_s(testbed, 3, 0) < 22
        with (
            pytest.raises(RemoteError, match="connection refused"),
            connected(testbed, testbed.nodes[5], 10),
        ):
            pass
        testbed.after_check("connectivity")  # again: all of them have begun


def test_a_fault_that_cannot_begin_is_an_error(
    local_testbed: LocalTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.platforms.local.platform._BEGIN_S", 1)
    fault = {"node": "node-1", "rate": "80mbit", "after": "connectivity"}
    with local_testbed(nodes=2, faults=[fault]) as (_, testbed):
        in_node(testbed, "node-1", "ip", "link", "del", "eth0")
        with pytest.raises(
            LaunchError, match="did not begin after its check: node-1 after-connectivity"
        ):
            testbed.after_check("connectivity")
