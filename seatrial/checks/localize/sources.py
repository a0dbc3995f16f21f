"""Tests of pairs and groups from files: nccl-tests output, perftest output of pairs, and tables;
folders too.
"""

import re
from collections import defaultdict
from io import TextIOBase
from itertools import islice
from pathlib import Path

from seatrial.checks.localize.logs import tests_of
from seatrial.checks.localize.tables import looks_like_pairs, tests_of_table
from seatrial.localize.group_tests import GroupTest
from seatrial.model.errors import InputError, NothingFoundError
from seatrial.model.result import Check
from seatrial.nccl.parse import PEEK, open_log, parse_stream
from seatrial.readers.parts import read_file
from seatrial.text.printable import printable

_SUFFIXES = (".log", ".txt", ".out", ".json", ".jsonl", ".csv", ".tsv")
_MOST_FILES = 20_000
_MOST_CHARACTERS = 256 << 20
# Separators of two node names in a file name, the least ambiguous first
_BETWEEN = re.compile(r"--|__|_to_|_vs_|_")
_RDMA = "rdma_bandwidth"


def files_of(path: str) -> list[str]:
    """Return the files in a folder and its subfolders, or the path itself.

    Raises InputError if there are none or too many.
    """
    if path == "-" or not Path(path).is_dir():
        return [path]
    every = (file for file in Path(path).rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    files = sorted(str(file) for file in islice(every, _MOST_FILES + 1))
    if not files or len(files) > _MOST_FILES:
        kinds = " ".join(_SUFFIXES)
        raise InputError(
            f"{printable(path)}: a folder needs 1 to {_MOST_FILES:,} files of these kinds: {kinds}"
        )
    return files


def tests_of_file(path: str) -> list[GroupTest]:
    """Return the tests in a file; empty if its format is unknown.

    Raises InputError if the path is not a file.
    """
    name = Path(path).name
    with open_log(path) as stream:
        try:
            return tests_of_stream(stream, name)
        except NothingFoundError:
            return _of_perftest(path, name)


def tests_of_stream(stream: TextIOBase, name: str) -> list[GroupTest]:
    """Return the tests of a table or of nccl-tests output.

    Raises NothingFoundError for anything else.
    """
    head = stream.read(PEEK)
    if looks_like_pairs(head):
        return tests_of_table(name, head + stream.read(_MOST_CHARACTERS))
    return tests_of(name, parse_stream(stream, name, head))


def _of_perftest(path: str, name: str) -> list[GroupTest]:
    """Return the bandwidths that perftest measured between the two nodes in the file's name, on the
    same device at both ends: it prints its own.
    """
    try:
        parts = read_file(path, name)
    except NothingFoundError:
        return []
    nodes = pair_in(Path(path).stem)
    by_test = defaultdict[tuple[str, str], dict[int, float]](dict)
    for check in parts:
        for m in check.measurements if isinstance(check, Check) else ():
            if m.metric == _RDMA:
                size = int(m.conditions["message_bytes"])
                by_test[str(m.conditions["test"]), m.subject.name][size] = m.value
    if by_test and nodes is None:
        raise InputError(
            f"{printable(path)}: perftest does not name its nodes; call the file NODE--NODE.log"
        )
    return [
        GroupTest(name, test, nodes, busbw_gb_s=sizes, gpus=((device,), (device,)))
        for (test, device), sizes in by_test.items()
        if nodes
    ]


def pair_in(stem: str) -> tuple[str, str] | None:
    """Return the two nodes in a file's name: `n1--n2`, `n1__n2`, `n1_to_n2`, `n1_n2`; None if there
    are none.
    """
    for match in _BETWEEN.finditer(stem):
        ends = stem.split(match[0])
        if len(ends) == 2 and all(ends) and ends[0] != ends[1]:
            return ends[0], ends[1]
    return None
