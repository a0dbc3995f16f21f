"""What a node says of a shared file system is typed and bounded; too little space is no fault of a
node.
"""

import json

import pytest

from seatrial.checks.storage.check import Storage, _steps
from seatrial.checks.storage.nodes import Greeting, Look, Note, Transfer, ring
from seatrial.remote.answers import NodeAnswer, read_answer

GREETING = {
    "folder": ".seatrial-a1_B",
    "filesystem": "nfs4",
    "free_bytes": 1 << 50,
    "direct": True,
    "lacks": "",
}


def test_a_greeting_is_read_without_control_characters() -> None:
    answer = read_answer(Greeting, json.dumps({**GREETING, "filesystem": "nfs\x1b[2J", "more": 1}))
    assert answer.filesystem == "nfs\N{REPLACEMENT CHARACTER}[2J"


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        *(
            (Greeting, GREETING | {"folder": folder})
            for folder in ("../../etc", ".seatrial-a/b", ".seatrial-", "", 5)
        ),
        *((Greeting, GREETING | {"free_bytes": free}) for free in (-1, 1 << 60, 1.5, "7", None)),
        (Greeting, GREETING | {"filesystem": "x" * 301}),
        (Greeting, GREETING | {"lacks": "fio; reboot"}),
        *((Transfer, {"id": 1, "bytes": size, "seconds": 1.0}) for size in (0, -1, 1 << 60, True)),
        *(
            (Transfer, {"id": 1, "bytes": 1, "seconds": seconds})
            for seconds in (0, -1.0, float("nan"), float("inf"))
        ),
        (Transfer, {"id": 1, "bytes": 1, "seconds": 1.0, "wrong": "x" * 301}),
        *((Note, {"id": 1, "digest": digest}) for digest in ("", "\x1b[2J" + "0" * 60, "0" * 65)),
        (Look, {"id": 1, "seconds": -1.0}),
    ],
)
def test_an_answer_that_no_probe_gives_is_refused(
    model: type[NodeAnswer], fields: dict[str, object]
) -> None:
    with pytest.raises(ValueError):
        read_answer(model, json.dumps(fields))


@pytest.mark.parametrize(
    "path",
    ["relative", "", "/a\nb", "/" + "x" * 300, "gs://", "gs://login:word@bucket", "gs://a b"],
)
def test_invalid_storage_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError):
        Storage(paths=(path,))


def test_load_steps_double_the_nodes_up_to_all() -> None:
    assert [_steps(nodes) for nodes in (0, 1, 2, 5, 8)] == [
        [],
        [1],
        [1, 2],
        [1, 2, 4, 5],
        [1, 2, 4, 8],
    ]


def test_each_node_reads_the_files_of_the_next_node() -> None:
    assert (ring(["a"]), ring(["a", "b", "c"])) == ({}, {"a": "b", "b": "c", "c": "a"})
