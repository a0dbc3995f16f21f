"""Which nodes try which others, and what the answer of a node may be."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.connectivity import stages
from seatrial.checks.connectivity.findings import Findings
from seatrial.checks.connectivity.reachability import TriedPairs, blame, merged
from seatrial.checks.connectivity.stages import peers_to_log_in_to, peers_to_reach, second_logins
from seatrial.model.errors import RemoteError
from seatrial.model.reason import Reason, placed, uncoded
from seatrial.model.result import Suspect
from seatrial.model.testbed import Node
from seatrial.remote import line_probe
from seatrial.remote.answers import ReachAnswer, read_answer
from seatrial.remote.command import LineReader
from seatrial.remote.node_setup import NodeConnection
from seatrial.remote.peers import try_streams, unreached
from seatrial.text.hostlist import host_list
from tests.suspects import kinds_and_names
from tests.unit.collectives.fake_mpirun import make_run, make_testbed


def names(count: int) -> list[str]:
    return [f"n{i}" for i in range(count)]


@pytest.mark.parametrize("count", [2, 5, 1024])
def test_every_node_tries_all_others_starting_with_a_different_one(count: int) -> None:
    peers = peers_to_reach(names(count), "seed")
    assert all(set(peers[name]) == set(names(count)) - {name} for name in names(count))
    assert len({tried[0] for tried in peers.values()}) == count


def test_more_peers_than_a_node_may_try_are_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.checks.connectivity.stages.MAX_PEERS", 10)
    some = names(50)
    peers = peers_to_reach(some, "run-1")
    assert {len(set(tried)) for tried in peers.values()} == {10}
    assert all(after == peers[name][0] for name, after in pairwise(some))


def test_nodes_sharing_cores_try_a_small_repeatable_sample_of_peers() -> None:
    peers = peers_to_reach(names(40), "run-1", shared_cores=2)
    assert {len(set(tried)) for tried in peers.values()} == {6}
    assert (
        peers
        == peers_to_reach(names(40), "run-1", shared_cores=2)
        != peers_to_reach(names(40), "run-2", 2)
    )
    assert {
        len(tried) for tried in peers_to_reach(names(16), "run-1", shared_cores=2).values()
    } == {15}
    assert {
        len(tried) for tried in peers_to_reach(names(512), "run-1", shared_cores=1).values()
    } == {2}


def test_peer_logins_are_those_of_the_head_and_of_the_mpirun_tree() -> None:
    assert peers_to_log_in_to(names(3)) == {"n0": ["n1", "n2"]}
    logins = peers_to_log_in_to(names(200))
    assert logins.pop("n0") == names(200)[1:]
    assert logins == {"n1": names(200)[65:129], "n2": names(200)[129:193], "n3": names(200)[193:]}
    shared = peers_to_log_in_to(names(200), shared_cores=2)
    assert sorted(target for targets in shared.values() for target in targets) == sorted(
        names(200)[1:]
    )


def test_a_login_that_fails_is_tried_by_others_so_that_the_node_is_blamed() -> None:
    first = TriedPairs(
        peers_to_log_in_to(names(5)), {("n0", "n2"): uncoded("Host key verification failed.")}
    )
    witnesses = second_logins(names(5), first.failed)
    assert witnesses == {"n3": ["n2"], "n4": ["n2"], "n1": ["n2"]}
    everybody = merged(
        first, TriedPairs(witnesses, {(name, "n2"): uncoded("the same") for name in witnesses})
    )
    assert kinds_and_names(blame(everybody)) == [("node", "n2")]
    nobody_else = merged(first, TriedPairs(witnesses, {}))
    assert kinds_and_names(blame(nobody_else)) == [("link", "n0--n2")]


@pytest.mark.parametrize(
    "answer",
    [
        {"tried": 3, "failed": {"refused": [3]}},
        {"tried": 3, "failed": {"refused": [-1]}},
        {"tried": 3, "failed": {"refused": [1], "timeout": [1]}},
        {"tried": 3, "failed": {"\x1b[31m": [1]}},
        {"tried": 3, "failed": {"refused": ["1"]}},
        {"tried": -1, "failed": {}},
        {"tried": 3},
        [],
    ],
)
def test_invalid_reach_answer_is_refused(answer: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_answer(ReachAnswer, json.dumps(answer))


def test_cut_among_a_thousand_nodes_is_named() -> None:
    some = names(1024)
    peers = peers_to_reach(some, "seed")
    across = {(a, b): uncoded("timed out") for a in some[:100] for b in some[100:]}
    (suspect,) = blame(TriedPairs(peers, across)).suspects
    assert suspect.name == "n[0-99]--n[100-1023]"
    assert f"{100 * 924} pairs fail" in suspect.evidence.sentence


# What nodes tell of the peers that they try to reach.


PEERS = tuple(Node(f"node-{n}", f"10.0.0.{n}", 222, 1, "ssh-ed25519 AAAA") for n in (1, 2))


def test_peers_not_listed_as_failed_count_as_reached() -> None:
    (failed,) = unreached([json.dumps({"tried": 2, "failed": {"refused": [1]}})], PEERS).items()
    assert (failed[0], failed[1].code) == ("node-2", "ssh-refused")


@pytest.mark.parametrize(
    "line",
    ["", "Welcome to node-0", '{"tried": 1, "failed": {}}', '{"tried": 2, "failed": {"no": [7]}}'],
)
def test_without_an_answer_no_peer_counts_as_reached(line: str) -> None:
    with pytest.raises(RemoteError) as caught:
        unreached([line], PEERS)
    assert caught.value.reason.code == "peers-not-tried"


LISTENS = json.dumps({"port": 40123, "token": "5a" * 16})
TRAFFIC = {"out": {"bytes": 2_000_000, "seconds": 1.0}, "in": {"bytes": 8_000_000, "seconds": 2.0}}


class Printing(LineReader):
    """A program that prints `lines`, one after each request, and ends."""

    def __init__(self, *lines: str) -> None:
        super().__init__()
        self.lines, self.requests = list(lines), list[dict[str, Any]]()

    def send(self, data: bytes) -> None:
        self.requests.append(json.loads(data))

    def read(self, timeout_s: float) -> bytes | None:
        return f"{self.lines.pop(0)}\n".encode() if self.lines else None


def contacts_of(programs: Mapping[str, Printing]) -> dict[str, NodeConnection]:
    """Connections to nodes; the name of the program that each starts stands for its transport."""
    return {f"node-{i}": NodeConnection(name, {}, 1, 0, 0) for i, name in enumerate(programs)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "node-0: nothing was printed"),
        (["Welcome"], "node-0: Welcome"),
        (
            [json.dumps({"port": 0, "token": "5a" * 16})],
            'node-0: {"port": 0, "token": "' + "5a" * 16 + '"}',
        ),
        ([LISTENS], "nothing was printed"),
        ([LISTENS, json.dumps({"id": 1, "error": "no route to host"})], "no route to host"),
        # Of another request
        ([LISTENS, json.dumps({"id": 7} | TRAFFIC)], json.dumps({"id": 7} | TRAFFIC)),
    ],
)
def test_what_a_node_printed_in_place_of_a_rate_is_shown(
    lines: list[str],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    programs = {"first": Printing(*lines), "second": Printing(LISTENS)}
    monkeypatch.setattr(line_probe, "start_process", lambda transport, _: programs[transport])
    contacts = contacts_of(programs)
    assert try_streams(make_testbed(2), contacts, [("node-0", "node-1")], 1) == {}
    assert caplog.messages == [f"node-0 to node-1: throughput cannot be measured: {problem}"]


@pytest.mark.parametrize("broken", ["send", "read"])
def test_connection_lost_between_streams_gives_no_rate(
    broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    programs = {"first": Printing(LISTENS), "second": Printing(LISTENS)}
    monkeypatch.setattr(line_probe, "start_process", lambda transport, _: programs[transport])
    contacts = contacts_of(programs)
    assert try_streams(make_testbed(2), contacts, [], 1) == {}

    def lost(_: object) -> None:
        raise OSError("Socket is closed")

    monkeypatch.setattr(programs["first"], broken, lost)
    assert try_streams(make_testbed(2), contacts, [("node-0", "node-1")], 1) == {}
    (message,) = caplog.messages
    assert message.endswith("Socket is closed")


def test_the_program_that_measures_streams_is_started_once_and_asked_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late, second = json.dumps({"id": 1} | TRAFFIC), json.dumps({"id": 2} | TRAFFIC)
    first = Printing("Welcome", LISTENS, json.dumps({"id": 1} | TRAFFIC), late, second)
    programs = {"first": first, "second": Printing(LISTENS)}
    started: list[str] = []

    def start(transport: str, command: str) -> Printing:
        started.append(transport)
        return programs[transport]

    monkeypatch.setattr(line_probe, "start_process", start)
    contacts = contacts_of(programs)
    testbed, rates = make_testbed(2), {("node-0", "node-1"): 2.0, ("node-1", "node-0"): 4.0}
    for _ in range(2):
        assert try_streams(testbed, contacts, [("node-0", "node-1")], 1) == rates
    assert sorted(started) == ["first", "second"]
    peer = {"address": testbed.nodes[1].address, "port": 40123, "token": "5a" * 16}
    assert [(request["id"], request["peer"]) for request in first.requests] == [
        (1, peer),
        (2, peer),
    ]


@pytest.mark.parametrize("taken", [["node-1"], ["node-1", "node-2"]])
def test_nodes_taken_by_the_scheduler_are_reported_once_without_blame(
    taken: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused = Reason.of("ssh-refused", address="10.0.0.1", port=222)

    def silent(findings: Findings, timeout_s: float) -> dict[str, NodeConnection]:
        findings.suspects += [Suspect("node", name, 1.0, refused) for name in taken]
        findings.problems += [placed(name, refused) for name in taken]
        findings.testbed = findings.testbed.without(taken)
        return {}

    monkeypatch.setattr(stages, "contact_nodes", silent)
    monkeypatch.setattr(stages, "try_pairs", lambda *_: None)
    bed = replace(make_testbed(3), blameless_reason=lambda node: uncoded("the job was preempted"))
    present = stages.roll_call(make_run(tmp_path, nodes=3), bed)
    assert (present.suspects, present.problems) == (
        (),
        (placed(host_list(taken), uncoded("the job was preempted")),),
    )
