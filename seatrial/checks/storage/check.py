"""The check `storage`: do nodes see the same data in a shared file system or object store, and how
fast is it?

All nodes begin each measurement together. Rates of single nodes are measured with all nodes at
once; the cluster's are their sums, by the number of nodes that take part (1, 2, 4, ...). Limits
come from history and peers.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.contract import (
    CheckContext,
    CheckType,
    Outcome,
    PlannedNodes,
    PlannedPart,
    Problem,
    Repeated,
    StepResult,
    TimeLeft,
    concluded,
    log_repeat,
)
from seatrial.checks.metrics import STORAGE_METRICS, Doubt
from seatrial.checks.storage.nodes import (
    Contention,
    Done,
    Greeting,
    Look,
    Note,
    SmallFiles,
    StorageNodes,
    Transfer,
    is_object_store,
    ring,
)
from seatrial.config.upload import Address
from seatrial.config.yamlfile import ByteSize, Strict
from seatrial.model.errors import MissingError
from seatrial.model.measurement import Conditions, Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.text.words import count, file_size, number, some_of

Request = dict[str, object]  # request to the probe of a node
log = logging.getLogger("seatrial.storage")

_NAME = "storage"
_VISIBLE_S = 1.0  # limit that ai-cloud-validation sets for shared file systems
_SHARE = 10  # all files together use at most 1 / _SHARE of the free space
_LEAST_BYTES = 8 << 20  # least bytes of one stream
_MOST_STREAMS = 64  # most streams of a node
_NOTES = 2  # a new file, then the same file with new content
_FULL = ("No space left", "quota exceeded", "Quota exceeded")

Folder = Annotated[str, Field(pattern=r"^/[^\x00-\x1f\x7f]{0,255}$")]
Url = Annotated[Address, Field(pattern=r"^[^/\x00-\x20\x7f]{1,255}://", max_length=255)]
Place = Annotated[
    Annotated[Folder, Tag("folder")] | Annotated[Url, Tag("url")],
    Discriminator(lambda path: "url" if "://" in str(path) else "folder"),
]


class Storage(Strict):
    """Storage that all nodes share: agreement between nodes, streams, small files, a checkpoint."""

    paths: tuple[Place, ...] = Field(
        min_length=1,
        max_length=8,
        description="folders that every node has, and URLs of object stores (`gs://bucket`)",
    )
    bytes: ByteSize = Field(
        1 << 30,
        ge=_LEAST_BYTES,
        description="of each node's file; all take a tenth of what is free",
    )
    seconds: float = Field(
        5.0, ge=1, le=3600, description="seconds for each of writing and reading, per step of nodes"
    )
    files: int = Field(1000, ge=1, le=1_000_000, description="small files on each node")
    timeout_s: float = Field(
        120, gt=0, le=86_400, description="seconds for an answer, besides those of streams"
    )


def storage(context: CheckContext) -> StepResult:
    """Measure each path.

    Raises MissingError if a node has no fio, or not the package of an object store.
    """
    started = time.monotonic()
    section = context.section(Storage)
    outcome = Outcome()
    for path in section.paths:
        outcome.add(_tried(context.testbed, section, path))
    nodes = count(len(context.testbed.nodes), "node")
    passed = Reason.of("storage-agrees", nodes=nodes, paths=some_of(section.paths))
    check = concluded(_NAME, outcome.problems, passed, started, outcome.measurements)
    return StepResult(check, context.testbed)


def _tried(testbed: Testbed, section: Storage, path: str) -> "_Trial":
    """Return the finished trial of a path, after its files were removed from it."""
    with closing(StorageNodes(testbed, path, section.timeout_s)) as nodes:
        trial = _Trial(nodes, section, path)
        trial.run()
    return trial


class _Trial(Outcome):
    """The trial of one path: its measurements and problems.

    `nodes` are connected, with a folder each on the path; `everyone` is the number of all nodes,
    including those that gave no answer.
    """

    def __init__(self, nodes: StorageNodes, section: Storage, path: str) -> None:
        super().__init__()
        self.nodes = nodes
        self.section = section
        self.path = path
        self.everyone = len(nodes.names) + len(nodes.failed)

    def run(self) -> None:
        """Take all measurements, the quick ones first.

        Raises MissingError if a node lacks a program. All other errors become problems.
        """
        greetings = self.nodes.greetings.items()
        lacking = {name: greeting.lacks for name, greeting in greetings if greeting.lacks}
        if lacking:
            program = next(iter(lacking.values()))
            where = f"on {some_of(lacking)}"
            remedy = f"install package {program}"
            raise MissingError.of("program-missing", program=program, where=where, remedy=remedy)
        size = self._bytes()
        # If nodes see different file systems, rates mean nothing
        if size and self._check_visibility():
            # Object stores have no locks, and transfer whole objects only
            if not is_object_store(self.path):
                self._check_locks()
                names = self.nodes.names
                for some in _steps(len(names)):
                    for direction in ("write", "read"):
                        self._stream(names[:some], direction, size)
            self._small_files()
            self._checkpoint(size)
        self.problems += self._failures()

    def _bytes(self) -> int:
        """Return the bytes of each node's file; 0 if too little space is free, or no node has
        answered.

        The free space of an object store is unknown.
        """
        greetings = self.nodes.greetings.values()
        if not greetings:
            return 0
        if is_object_store(self.path):
            return self.section.bytes
        free = min(greeting.free_bytes for greeting in greetings if isinstance(greeting, Greeting))
        size = min(self.section.bytes, free // _SHARE // len(greetings))
        most_streams = max(map(self._streams_of, self.nodes.names))
        if size >= _LEAST_BYTES * most_streams:
            return size
        reason = Reason.of(
            "storage-full", path=self.path, free=file_size(free), nodes=len(greetings)
        )
        self.problems.append(Problem(Verdict.INCONCLUSIVE, reason))
        return 0

    def _streams_of(self, name: str) -> int:
        """Return the number of streams of a node: one per rank, as when a training saves
        checkpoints; fewer if their parts of the file would be too small.
        """
        slots = next(node.slots for node in self.nodes.nodes if node.name == name)
        return min(slots, _MOST_STREAMS, self.section.bytes // _LEAST_BYTES)

    def _check_visibility(self) -> bool:
        """Check that each node sees in time what the previous node in the ring wrote.

        Return whether all did; true for a single node.
        """
        reader = ring(self.nodes.names)
        writer = {after: name for name, after in reader.items()}
        unseen = {}
        seconds: dict[str, float] = {}
        for _ in range(_NOTES if reader else 0):
            notes = self.nodes.ask(reader, lambda name: {"do": "note"}, Note)
            digests = {name: notes[writer[name]].digest for name in writer if writer[name] in notes}
            request = partial(self._look, writer, digests)
            looks = self.nodes.ask(digests, request, Look)
            for name, look in looks.items():
                if look.seconds is None:
                    unseen[writer[name], name] = look.seen
                else:
                    seconds[name] = max(seconds.get(name, 0.0), look.seconds)
        for name, longest in seconds.items():
            self._record("storage_visible", longest, Subject("node", name), better=None)
        self.problems += self._disagreements("storage-not-seen", unseen, limit_s=f"{_VISIBLE_S:g}")
        return not unseen

    def _check_locks(self) -> None:
        """Check that a file that a node has locked is locked for the next node in the ring.

        All locks are released, even if the next node gave no answer.
        """
        reader = ring(self.nodes.names)
        held = self.nodes.ask(reader, lambda name: {"do": "hold"}, Done)
        holder = {reader[name]: name for name in held}
        tried = self.nodes.ask(
            holder, lambda name: self._about_folder_of("contend", holder[name]), Contention
        )
        ignored = {(holder[name], name): "" for name, answer in tried.items() if not answer.locked}
        self.problems += self._disagreements("storage-lock-ignored", ignored)
        self.nodes.ask(held, lambda name: {"do": "release"}, Done)

    def _look(self, writer: Mapping[str, str], digests: Mapping[str, str], name: str) -> Request:
        """Return the request to look for the note of the previous node in the ring, by its
        digest.
        """
        return {
            **self._about_folder_of("look", writer[name]),
            "digest": digests[name],
            "limit_s": _VISIBLE_S,
        }

    def _about_folder_of(self, request: str, other: str) -> Request:
        """Return a request about the folder of another node."""
        return {"do": request, "folder": self.nodes.greetings[other].folder}

    def _disagreements(
        self, code: str, pairs: Mapping[tuple[str, str], str], **values: object
    ) -> Iterator[Problem]:
        """Yield a problem for each pair (writer, reader).

        A node that disagrees with both neighbours is the suspect, if fewer than half of the nodes
        do.
        """
        both = {writer for writer, _ in pairs} & {reader for _, reader in pairs}
        are_few = 2 * len(both) < self.everyone
        for (writer, reader), seen in pairs.items():
            reason = Reason.of(
                code, path=self.path, writer=writer, reader=reader, seen=seen, **values
            )
            suspect = None
            for name in (reader, writer):  # the writer takes precedence
                if are_few and name in both:
                    suspect = Suspect("node", name, 0.9, reason)
            yield Problem(Verdict.FAIL, reason, suspect)

    def _small_files(self) -> None:
        """Measure how many small files a second each node writes and reads, all at once."""
        files = self.section.files
        answers = self.nodes.ask(
            self.nodes.names, lambda name: {"do": "files", "count": files}, SmallFiles
        )
        for name, answer in answers.items():
            self._record("storage_files", files / answer.seconds, Subject("node", name))
            self._compare(name, answer.wrong)

    def _stream(self, names: Sequence[str], direction: str, size: int) -> None:
        """Measure the combined rate of some nodes; with all nodes, also the rate of each."""
        seconds = self.section.seconds
        metric = f"storage_{direction}"

        def request(name: str) -> Request:
            return {
                "do": "stream",
                "direction": direction,
                "bytes": size,
                "seconds": seconds,
                "jobs": self._streams_of(name),
            }

        answers = self.nodes.ask(names, request, Transfer, 2 * seconds)
        nodes = len(names)
        if len(answers) < nodes:
            return  # incomplete: not all nodes answered
        total = sum(answer.gb_s for answer in answers.values())
        self._record(metric, total, Subject("cluster", "cluster"), nodes=nodes)
        slowest = min(answers, key=lambda name: answers[name].gb_s)
        log.info(
            "%s: %s %s GB/s on %s, %s on %s",
            self.path,
            direction,
            number(total),
            count(nodes, "node"),
            number(answers[slowest].gb_s),
            slowest,
        )
        if nodes < self.everyone:
            return
        for name, answer in answers.items():
            self._record(metric, answer.gb_s, Subject("node", name))

    def _checkpoint(self, size: int) -> None:
        """Have each node save its part, with a file for each rank, and the next node read and
        compare it.
        """
        names = self.nodes.names

        def save(name: str) -> Request:
            return {"do": "save", "bytes": size, "shards": self._streams_of(name)}

        most_s = 2 * self.section.seconds
        saved = self.nodes.ask(names, save, Transfer, most_s)
        # A single node reads its own part
        reader = ring(list(saved)) or {name: name for name in saved}
        writer = {reader[name]: name for name in saved}

        def load(name: str) -> Request:
            return {**save(writer[name]), **self._about_folder_of("load", writer[name])}

        loaded = self.nodes.ask(writer, load, Transfer, most_s)
        for metric, answers in (("storage_save", saved), ("storage_load", loaded)):
            if not answers or len(answers) < len(names):
                continue
            moved = sum(each.bytes for each in answers.values())
            longest_s = max(each.seconds for each in answers.values())
            gb_s = moved / longest_s / 1e9
            self._record(metric, gb_s, Subject("cluster", "cluster"), nodes=len(answers))
        for name, answer in loaded.items():
            if answer.wrong:
                words = f"{name} read from {writer[name]}'s checkpoint: {answer.wrong}"
                self._compare(name, words)

    def _compare(self, name: str, wrong: str) -> None:
        """Add a problem if data was not read as it was written.

        The reader is only a weak suspect, since the writer may be to blame.
        """
        if not wrong:
            return
        evidence = Reason.of("storage-wrong", path=self.path, what=wrong)
        suspect = Suspect("node", name, 0.5, evidence)
        self.problems.append(Problem.of(Verdict.CORRUPT, suspect))

    def _failures(self) -> Iterator[Problem]:
        """Yield a problem for each node that gave no answer; without suspects if all did, or if the
        space is full.
        """
        failed = self.nodes.failed
        for name, error in failed.items():
            if any(words in error.reason.sentence for words in _FULL):
                full = Reason.of("storage-full", path=self.path, free="0 B", nodes=self.everyone)
                yield Problem(Verdict.INCONCLUSIVE, full)
                continue
            evidence = Reason.of("storage-failed", path=self.path, problem=error.reason)
            problem = Problem.of(Verdict.FAIL, Suspect("node", name, 0.9, evidence))
            if len(failed) == self.everyone:
                problem = Problem(problem.verdict, problem.reason)
            yield problem

    def _record(
        self,
        metric: str,
        value: float,
        subject: Subject,
        better: Literal["higher"] | None = "higher",
        **more: int,
    ) -> None:
        """Add a measurement with the conditions of the path.

        `more` are further conditions. At least one node must have answered.
        """
        greetings = list(self.nodes.greetings.values())
        conditions: Conditions = {
            "path": self.path,
            "filesystem": greetings[0].filesystem,
            "direct": all(isinstance(each, Greeting) and each.direct for each in greetings),
            **more,
        }
        unit = STORAGE_METRICS[metric].unit
        self.measurements.append(
            Measurement(
                metric=metric,
                value=value,
                unit=unit,
                subject=subject,
                conditions=conditions,
                samples=(value,),
                better=better,
            )
        )


def _steps(nodes: int) -> list[int]:
    """Return 1, 2, 4, ... up to the number of nodes, which comes last; empty for 0."""
    steps = []
    some = 1
    while some < nodes:
        steps.append(some)
        some *= 2
    if nodes:
        steps.append(nodes)
    return steps


def repeat_storage(
    context: CheckContext, doubts: Sequence[Doubt], repeated: Repeated, left: TimeLeft
) -> None:
    """Measure the doubtful paths again with all nodes, as long as time is left."""
    section = context.section(Storage)
    log_repeat(_NAME, doubts)
    for path in dict.fromkeys(str(doubt.measurement.conditions["path"]) for doubt in doubts):
        if left.over:
            return
        trial = _tried(context.testbed, section, path)
        repeated.measurements += trial.measurements
        repeated.add_outcome(*trial.problems)


def _plan(section: Storage, nodes: PlannedNodes) -> list[PlannedPart]:
    """Return the estimated and the maximum duration of all paths."""
    paths = len(section.paths)
    steps = len(_steps(nodes.count)) + 1  # one more step for the checkpoint
    streams_s = 2 * section.seconds * steps
    about_s = paths * (streams_s + 10)
    most_s = about_s + paths * section.timeout_s
    summary = f"write and read {some_of(section.paths)} on 1 to {nodes.count} nodes"
    return [PlannedPart(summary, about_s, most_s)]


STORAGE = CheckType(
    name=_NAME,
    section=Storage,
    description="file systems and object stores that all nodes share",
    run=storage,
    after=CONNECTIVITY.name,
    metrics=STORAGE_METRICS,
    repeat=repeat_storage,
    plan=_plan,
)
