"""The check `rdma`: perftest between pairs of nodes, on every rail alone and on all rails at once.

In a round each node has one partner, and all pairs are tested at once, so that the switches between
them carry load too; nodes of one machine take turns. Results are measurements of links by rail:
`out` from the first node in the link's name, `in` to it. Port counters before and after come from
the inventory.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Annotated

from pydantic import Field

from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.connectivity.findings import Findings
from seatrial.checks.connectivity.inventory import Inventories
from seatrial.checks.connectivity.reachability import Pair, link_name
from seatrial.checks.connectivity.throughput import partners
from seatrial.checks.contract import (
    CheckContext,
    CheckType,
    Outcome,
    Problem,
    Repeated,
    StepResult,
    TimeLeft,
    concluded,
    log_repeat,
    unanswered,
)
from seatrial.checks.metrics import RDMA_METRICS, Doubt
from seatrial.checks.rdma.section import (
    PairTest,
    Rail,
    Rdma,
    command_line,
    gpu_beside,
    memory_of,
    most_rounds,
    options_in,
    plan_rdma,
    rdma_devices,
    tests_of_pair,
)
from seatrial.model.errors import MissingError, RemoteError
from seatrial.model.measurement import Conditions, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.testbed import Node, Testbed
from seatrial.model.verdict import Verdict
from seatrial.readers.perftest import read_perftest
from seatrial.remote.answers import NodeAnswer, printable
from seatrial.remote.line_probe import LineProbe
from seatrial.remote.node_setup import standard_library_program
from seatrial.remote.ssh import answered, connected, fan_out, in_parallel, on_each
from seatrial.text.words import count, number, some_of

log = logging.getLogger("seatrial.rdma")

_NAME = "rdma"
_REMEDY = "install package perftest, or name its `folder`"
_NOT_FOUND = 127  # exit status of a missing program
_SPARE_S = 10.0  # seconds in addition to the run time of the programs
_MOST_PROGRAMS = 64
_MOST_REASONS = 4


class Ended(NodeAnswer):
    """The end of one program; the status is None if it was ended at the time limit."""

    status: int | None = Field(ge=-255, le=255)
    output: Annotated[str, Field(max_length=4096)]


class AllEnded(NodeAnswer):
    """The ends of the programs of the request `id`."""

    id: int
    ended: list[Ended] = Field(max_length=_MOST_PROGRAMS)


class Listening(NodeAnswer):
    """Whether all ports of the request `id` are listened on; if not, its programs have ended."""

    id: int
    listening: bool


def rdma(context: CheckContext) -> StepResult:
    """Run the rounds of pairs of the suite.

    Raises MissingError if a node has no perftest, or no node has an RDMA device.
    """
    started = time.monotonic()
    section = context.section(Rdma)
    testbed = context.testbed
    trial = _Trial(context, section)
    outcome = Outcome(problems=list(trial.missing))
    for pairs in _rounds(testbed, section, context.run.day or 0):
        outcome.add(trial.run(pairs))
    links = {measurement.subject.name for measurement in outcome.measurements}
    passed = Reason.of(
        "rdma-passed", pairs=count(len(links), "pair"), rails=count(len(trial.rails), "rail")
    )
    check = concluded(_NAME, outcome.problems, passed, started, outcome.measurements, _MOST_REASONS)
    return StepResult(check, testbed)


def _rounds(testbed: Testbed, section: Rdma, day: int) -> Iterator[list[Pair]]:
    """Yield lists of disjoint pairs, different each day; one pair at a time if nodes share a
    machine.
    """
    names = testbed.names
    rounds = min(section.rounds, most_rounds(len(names)))
    for turn in range(rounds):
        pairs = partners(names, day * rounds + turn)
        if testbed.shared_cores:
            for pair in pairs:
                yield [pair]
        else:
            yield pairs


class _Trial:
    """The rails of a testbed, perftest's options there, and the tests of its pairs."""

    def __init__(self, context: CheckContext, section: Rdma) -> None:
        self.testbed = context.testbed
        self.section = section
        findings = context.recall(Findings)
        self._inventories: Inventories = findings.inventories if findings else {}
        self._nodes = self.testbed.by_name
        self.known = self._options()
        devices, self.missing = self._devices()
        self.rails = [self._rail(device, place) for place, device in enumerate(devices)]

    def _options(self) -> frozenset[str]:
        """Return the options that perftest has on all nodes.

        Raises MissingError if a node lacks it.
        """
        section = self.section
        prefix = ""
        if section.folder:
            prefix = f"{section.folder}/"
        request = {
            "programs": [[prefix + name, "--help"] for name in section.programs],
            "ports": [],
            "seconds": section.timeout_s,
        }

        def ask(node: Node) -> list[Ended]:
            """Run all programs with --help."""
            with ExitStack() as opened:
                probe = self._probe(node, opened)
                return probe.ask(request, AllEnded, section.timeout_s + _SPARE_S).ended

        answers = on_each(self.testbed.nodes, ask, fan_out(self.testbed))
        ended = answered(answers)
        for place, program in enumerate(section.programs):
            lacking = [
                name
                for name, all_ended in ended.items()
                if place >= len(all_ended) or all_ended[place].status == _NOT_FOUND
            ]
            if lacking:
                raise MissingError.of(
                    "program-missing",
                    program=program,
                    where=f"on {some_of(lacking)}",
                    remedy=_REMEDY,
                )
        texts = ["\n".join(each.output for each in all_ended) for all_ended in ended.values()]
        if not texts:
            return frozenset()
        return frozenset.intersection(*map(options_in, texts))

    def _devices(self) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
        """Return the RDMA devices that most nodes have, and a problem for each node that lacks one.

        Raises MissingError if there are no such devices.
        """
        if self.section.devices:
            return self.section.devices, ()
        up = {
            name: rdma_devices(inventory)
            for name, inventory in self._inventories.items()
            if name in self._nodes
        }
        having = Counter(device for devices in up.values() for device in devices)
        most = len(self._nodes) / 2
        devices = tuple(sorted(device for device, nodes in having.items() if nodes > most))
        if not devices:
            raise MissingError.of("rdma-no-device")
        problems = []
        for name, own in up.items():
            lacking = [device for device in devices if device not in own]
            if lacking:
                evidence = Reason.of("rdma-device-down", devices=some_of(lacking))
                problems.append(_of_node(name, evidence))
        return devices, tuple(problems)

    def _rail(self, device: str, place: int) -> Rail:
        """Return the rail of a device, with the GPU next to it on each node if every node
        has one.
        """
        gpu_by_node = {}
        for name in self.testbed.names:
            gpu = gpu_beside(self._inventories.get(name), device, place)
            if gpu is not None:
                gpu_by_node[name] = gpu
        if len(gpu_by_node) < len(self.testbed.nodes):
            gpu_by_node = {}
        return Rail(device=device, port=self.section.port + place, gpu_by_node=gpu_by_node)

    def _probe(self, node: Node, opened: ExitStack) -> LineProbe:
        """Start the probe that runs programs on a node."""
        transport = opened.enter_context(connected(self.testbed, node, self.section.timeout_s))
        return LineProbe(transport, standard_library_program(self.testbed, "programs.py"))

    def run(self, pairs: Sequence[Pair]) -> Outcome:
        """Run all tests on disjoint pairs, each test on all pairs at once."""
        outcome = Outcome()
        with ExitStack() as opened:
            nodes = [self._nodes[name] for pair in pairs for name in pair]
            started = on_each(nodes, lambda node: self._probe(node, opened), fan_out(self.testbed))
            probes = answered(started)
            outcome.problems += [_of_node(*silent) for silent in unanswered(started).items()]
            left = [pair for pair in pairs if set(pair) <= probes.keys()]
            for test in tests_of_pair(self.section, self.rails):
                tested = partial(self._tested, test, probes)
                results = in_parallel(left, tested, max(1, len(left)))
                of_pairs = list(zip(left, results, strict=True))
                left = []
                for pair, result in of_pairs:
                    outcome.add(result)
                    _log(test, pair, result)
                    if not result.problems:
                        left.append(pair)
        return outcome

    def _tested(self, test: PairTest, probes: Mapping[str, LineProbe], pair: Pair) -> Outcome:
        """Run one test of one pair: start the server, then the client."""
        client, server = pair
        if test.way == "in":
            server, client = pair
        address = self._nodes[server].address
        commands: dict[str, list[list[str]]] = {}
        for name, to in ((server, ""), (client, address)):
            commands[name] = [
                command_line(self.section, test, rail, name, self.known, to) for rail in test.rails
            ]
        limit_s = self.section.seconds + self.section.timeout_s
        ports = [rail.port for rail in test.rails]
        serving = {"programs": commands[server], "ports": ports, "seconds": limit_s}
        asking = {"programs": commands[client], "ports": [], "seconds": limit_s}
        at_server = probes[server]
        at_client = probes[client]
        first_device = test.rails[0].device
        answer_s = limit_s + _SPARE_S
        try:
            serves = at_server.send(serving)
            answer = at_server.answer(serves, Listening, answer_s)
            if not answer.listening:
                ended = at_server.answer(serves, AllEnded, _SPARE_S).ended
                device, message = self._first_failure(test, ended)
                return _failed(pair, device, message)
            asks = at_client.send(asking)
            ended = at_client.answer(asks, AllEnded, answer_s).ended
            served = at_server.answer(serves, AllEnded, answer_s).ended
        except RemoteError as error:
            return _failed(pair, first_device, error.reason)
        if not len(ended) == len(served) == len(test.rails):
            return _failed(pair, first_device, "another number of programs ended")
        outcome = Outcome()
        for rail, *of_rail in zip(test.rails, ended, served, strict=True):
            outcome.add(self._read(test, rail, pair, of_rail))
        return outcome

    def _first_failure(self, test: PairTest, ended: Sequence[Ended]) -> tuple[str, str]:
        """Return the device whose program failed first, and its message."""
        silent = "the program does not listen"
        for rail, end in zip(test.rails, ended, strict=False):
            if end.status:
                return rail.device, _message((end,)) or silent
        return test.rails[0].device, silent

    def _read(self, test: PairTest, rail: Rail, pair: Pair, ended: Sequence[Ended]) -> Outcome:
        """Return the result of one rail as a measurement, or the problem."""
        at_client, at_server = ended
        own = read_perftest(_lines(at_client))
        of_server = read_perftest(_lines(at_server))
        for result in (*own.results, *of_server.results):
            if result.verdict is Verdict.CORRUPT:
                return _failed(pair, rail.device, result.words, Verdict.CORRUPT)
        measured = [m for m in own.measurements if m.finite and m.value > 0]
        if at_client.status != 0 or not measured:
            return _failed(pair, rail.device, _message(ended) or "no result")
        m = measured[-1]
        conditions: Conditions = {
            "test": test.program,
            "rail": rail.device,
            "rails_at_once": len(test.rails),
            "way": test.way,
            "memory": memory_of(self.known, rail),
            "message_bytes": m.conditions["message_bytes"],
        }
        return Outcome(
            [replace(m, subject=Subject("link", link_name(*pair)), conditions=conditions)]
        )


def _lines(end: Ended) -> list[str]:
    """Return the output of a program as lines without tabs."""
    return [printable(line.expandtabs()) for line in end.output.splitlines()]


def _message(ended: Sequence[Ended]) -> str:
    """Return the first error message of perftest, else the last line that a program printed."""
    errors = (result.words for each in ended for result in read_perftest(_lines(each)).results)
    last = (line for each in ended for line in reversed(_lines(each)) if line.strip())
    return next(errors, "") or next(last, "").strip()


def _of_node(name: str, evidence: Reason) -> Problem:
    """Return the problem of a node that does not answer or lacks a device."""
    suspect = Suspect("node", name, 0.9, evidence)
    return Problem.of(Verdict.FAIL, suspect)


def _failed(pair: Pair, device: str, problem: object, verdict: Verdict = Verdict.FAIL) -> Outcome:
    """Return the outcome of a pair that could not be tested on a rail, or had wrong data there."""
    code = "rdma-failed"
    if verdict is Verdict.CORRUPT:
        code = "rdma-wrong"
    evidence = Reason.of(code, device=device, what=problem)
    suspect = Suspect("link", link_name(*pair), 0.7, evidence)
    return Outcome(problems=[Problem.of(verdict, suspect)])


def _log(test: PairTest, pair: Pair, outcome: Outcome) -> None:
    """Log the lowest and highest value of a test."""
    values = [m.value for m in outcome.measurements]
    if values:
        unit = outcome.measurements[0].unit
        log.info(
            "%s %s: %s on %s, %s to %s %s",
            link_name(*pair),
            test.way,
            test.program,
            count(len(values), "rail"),
            number(min(values)),
            number(max(values)),
            unit,
        )


def repeat_rdma(
    context: CheckContext, doubts: Sequence[Doubt], repeated: Repeated, left: TimeLeft
) -> None:
    """Repeat the tests of doubtful pairs."""
    log_repeat(_NAME, doubts)
    trial = _Trial(context, context.section(Rdma))
    for pair in dict.fromkeys(doubt.measurement.subject.nodes for doubt in doubts):
        if left.over:
            return
        outcome = trial.run([(pair[0], pair[1])])
        repeated.measurements += outcome.measurements
        repeated.add_outcome(*outcome.problems)


RDMA = CheckType(
    name=_NAME,
    section=Rdma,
    description="perftest between nodes",
    run=rdma,
    after=CONNECTIVITY.name,
    metrics=RDMA_METRICS,
    least_ranks=2,
    repeat=repeat_rdma,
    plan=plan_rdma,
)
