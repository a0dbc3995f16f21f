"""Counters and errors that rise in a run: a note, and evidence where numbers of the same node are
slow.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.connectivity.counters import revisit_inventories, risen
from seatrial.checks.connectivity.findings import Findings
from seatrial.checks.contract import CheckContext
from seatrial.checks.suites import load_suite
from seatrial.config.run import Run
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check, Judgement, Suspect
from seatrial.model.verdict import Verdict
from seatrial.remote.answers import read_answer
from seatrial.remote.node_probe import Inventory
from tests.fake_platform import FakePlatform
from tests.suspects import suspect_names

XID = {"kind": "Xid", "number": 74, "pci": "0000:1b:00", "count": 1, "age_s": 9.0}


def text(
    errors: dict[str, int], *, losses: int = 0, nvlink: dict[str, int] | None = None, **fields: Any
) -> str:
    port = {"port": "mlx5_0/1", "kind": "InfiniBand", "up": True, "gbit_s": 400.0, "errors": errors}
    gpu = {"name": "gpu-0", "errors": nvlink or {}}
    return json.dumps(
        {"gpus": [gpu], "ports": [{**port, "losses": {"packet_seq_err": losses}}], **fields}
    )


def inventory(*args: Any, **fields: Any) -> Inventory:
    return read_answer(Inventory, text(*args, **fields))


QUIET = text({"link_downed": 5}, xids=[])
FLAPPED = text({"link_downed": 6}, losses=40, nvlink={"NVLink 3 CRC Errors": 7}, xids=[XID])


def revisited(
    folder: Path, after: dict[str, str], *checks: Check, before: str = QUIET
) -> tuple[list[Check], dict[str | None, str]]:
    """What is found of four nodes that were quiet before; those of `after` then print that."""
    platform = FakePlatform(nodes=4)
    run = Run("run-1", platform.cluster(), load_suite("quick"), folder)
    testbed = platform.launch(run)
    for node in testbed.nodes:
        platform.nodes[node.name].programs["inventory.py"] = lambda request: after.get(
            request.node.name, before
        )
    findings = Findings(
        testbed, inventories={node.name: read_answer(Inventory, before) for node in testbed.nodes}
    )
    new_checks, notes = revisit_inventories(CheckContext(run, testbed, kept=(findings,)), checks)
    return new_checks, {note.code: str(note) for note in notes}


def slow(*suspects: Suspect, metric: str = "busbw_plateau") -> Check:
    judgement = Judgement(
        Measurement(metric, 1.0, "GB/s", Subject("cluster", "fake")),
        Verdict.DEGRADED,
        uncoded("slow"),
        "history",
    )
    return Check(
        "collectives", Verdict.DEGRADED, uncoded("slow"), judgements=(judgement,), suspects=suspects
    )


def named(check: Check) -> list[tuple[str, str, str | None]]:
    return [(suspect.kind, suspect.name, suspect.evidence.code) for suspect in check.suspects]


def test_risen_counters_are_notes_when_nothing_is_slow(tmp_path: Path) -> None:
    good = Check("collectives", Verdict.PASS, uncoded("fast"))
    (check,), notes = revisited(tmp_path, {"node-2": FLAPPED}, good)
    assert check == good
    assert notes.keys() == {"link-errors-rose", "packets-lost", "errors-in-run"}
    assert notes["packets-lost"] == "packet_seq_err of node-2/mlx5_0/1 rose by 40 during the run"
    assert notes["errors-in-run"].startswith(
        "during the run: Xid 74 (NVLink error) 1 times on node-2"
    )


def test_a_node_without_gpus_is_asked_again_for_its_fabric_ports(tmp_path: Path) -> None:
    quiet, flapped = (json.dumps({**json.loads(each), "gpus": []}) for each in (QUIET, FLAPPED))
    _, notes = revisited(tmp_path, {"node-2": flapped}, before=quiet)
    assert notes.keys() == {"link-errors-rose", "packets-lost", "errors-in-run"}


def test_unchanged_counters_make_no_note(tmp_path: Path) -> None:
    assert revisited(tmp_path, {}, slow()) == ([slow()], {})


def test_risen_counters_on_a_slow_node_are_evidence(tmp_path: Path) -> None:
    own = Suspect("node", "node-2", 0.9, uncoded("slow"))
    (check,), _ = revisited(tmp_path, {"node-2": FLAPPED}, slow(own))
    assert named(check) == [
        ("node", "node-2", None),
        ("node", "node-2", "link-errors-rose"),
        ("gpu", "node-2/gpu-0", "link-errors-rose"),
    ]
    assert (check.verdict, check.reason.sentence) == (Verdict.DEGRADED, "slow")


def test_risen_counters_on_an_unsuspected_node_blame_nobody(tmp_path: Path) -> None:
    own = Suspect("link", "node-0--node-1", 0.9, uncoded("slow"))
    (check,), _ = revisited(tmp_path, {"node-2": FLAPPED}, slow(own))
    assert check.suspects == (own,)
    (check,), _ = revisited(tmp_path, {"node-1": FLAPPED}, slow(own))
    assert set(suspect_names(check)) == {own.name, "node-1", "node-1/gpu-0"}


@pytest.mark.parametrize(
    ("nodes", "metric", "blamed"), [(1, "busbw", 2), (2, "busbw", 0), (1, "matmul", 0)]
)
def test_risen_counters_on_few_nodes_become_suspects_when_there_are_none(
    tmp_path: Path, nodes: int, metric: str, blamed: int
) -> None:
    after = {f"node-{number}": FLAPPED for number in range(nodes)}
    (check,), _ = revisited(tmp_path, after, slow(metric=metric))
    assert len(check.suspects) == blamed


def test_unanswered_second_reading_shows_no_rise(tmp_path: Path) -> None:
    assert revisited(tmp_path, {"node-2": "garbage"}, slow()) == ([slow()], {})


@pytest.mark.parametrize(
    ("before", "after", "rises"),
    [
        ({"link_downed": 5}, {"link_downed": 6}, [("link_downed", 1)]),
        ({"link_downed": 5}, {"link_downed": 5}, []),
        ({"link_downed": 5}, {"link_downed": 0}, []),  # began anew: the driver was loaded again
        ({}, {"link_downed": 6}, []),
    ],
)
def test_a_counter_counts_only_if_read_both_times(
    before: dict[str, int], after: dict[str, int], rises: list[tuple[str, int]]
) -> None:
    counted = risen({"node-0": inventory(before)}, {"node-0": inventory(after)})
    assert [(rise.counter, rise.by) for rise in counted] == rises


def test_nvlinks_that_were_not_read_before_say_nothing() -> None:
    before = inventory({})
    unread = before.model_copy(
        update={"gpus": [before.gpus[0].model_copy(update={"errors": None})]}
    )
    after = inventory({}, nvlink={"NVLink 3 CRC Errors": 7})
    assert [rise.by for rise in risen({"node-0": before}, {"node-0": after})] == [7]
    assert risen({"node-0": unread}, {"node-0": after}) == []
