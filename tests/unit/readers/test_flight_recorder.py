"""Who did not enter which collective: from traces, from dumps that may be hostile, and from the
watchdog's lines.
"""

import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from seatrial.cli.diagnose import diagnose
from seatrial.readers.flight_recorder import (
    GroupTrace,
    NoDump,
    RankTrace,
    circular_wait,
    late_ranks,
    read_dump,
    read_watchdog,
)


def dump(collectives: Mapping[str, int], ranks: Mapping[str, list[int]] | None = None) -> bytes:
    """A dump as torch 2.9 writes it; `collectives` are how many a rank has entered, by group."""
    entries = [
        {
            "process_group": (group, f"mesh_{group}"),
            "collective_seq_id": number,
            "p2p_seq_id": 0,
            "profiling_name": "nccl:all_reduce",
            "state": "scheduled",
            "is_p2p": False,
        }
        for group, count in collectives.items()
        for number in range(1, count + 1)
    ]
    config = {
        group: {"name": group, "desc": "", "ranks": json.dumps(of)}
        for group, of in (ranks or {}).items()
    }
    return pickle.dumps({"version": "2.10", "pg_config": config, "entries": entries}, protocol=2)


def pipeline(rank: int, *calls: tuple[str, str]) -> RankTrace:
    """A dump of a stage; each call is a batch, and its state that of the batch: its own stays
    `scheduled`.
    """
    shared = {
        "process_group": ("5", "mesh_pp"),
        "collective_seq_id": 0,
        "is_p2p": True,
        "retired": False,
    }
    entries = []
    for number, (name, state) in enumerate(calls, 1):
        entries.append(
            {**shared, "p2p_seq_id": number, "profiling_name": f"nccl:{name}", "state": "scheduled"}
        )
        entries.append(
            {**shared, "p2p_seq_id": number, "profiling_name": "nccl:coalesced", "state": state}
        )
    config = {"5": {"name": "5", "desc": "mesh_pp", "ranks": "[4, 5, 6, 7]"}}
    return read_dump(pickle.dumps({"pg_config": config, "entries": entries}, protocol=2), rank)


def trace(rank: int, waits: bool | None = None, /, **groups: int) -> RankTrace:
    return RankTrace(
        rank, {name: GroupTrace(name, (), number) for name, number in groups.items()}, waits=waits
    )


@pytest.mark.parametrize(
    ("traces", "named"),
    [
        ([trace(0, dp=5), trace(1, dp=4), trace(2, dp=5)], [1]),
        ([trace(0, dp=5), trace(1, dp=5)], []),
        # rank 2 is behind in dp only because it waits in tp for rank 3, which is the one that is
        # late
        (
            [
                trace(0, dp=5, tp0=8),
                trace(1, dp=5, tp0=8),
                trace(2, dp=4, tp1=8),
                trace(3, dp=4, tp1=7),
            ],
            [3],
        ),
        ([trace(0, a=2, b=1), trace(1, a=1, b=2)], []),  # each waits for the other
        ([trace(0, True, dp=5), trace(1, True, dp=5), trace(2, False, dp=5)], [2]),
        ([trace(0, False, dp=5), trace(1, True, dp=5)], []),  # one of two is no minority
    ],
)
def test_the_rank_that_others_wait_for_is_named(traces: list[RankTrace], named: list[int]) -> None:
    assert [each.rank for each in late_ranks(traces)] == named


def test_ranks_that_wait_for_each_other_are_reported_as_a_circle() -> None:
    reason = circular_wait([trace(0, a=2, b=1), trace(1, a=1, b=2)])
    assert reason
    assert reason.sentence == "ranks 0, 1 wait for each other in groups a, b"
    assert circular_wait([trace(0, a=2), trace(1, a=2)]) is None


def test_rank_without_a_dump_is_late() -> None:
    dumps = [read_dump(dump({"0": 4}, {"0": [0, 1, 2]}), rank) for rank in (0, 2)]
    assert [(each.rank, each.reason.code) for each in late_ranks(dumps)] == [
        (1, "rank-left-no-dump")
    ]


def test_late_rank_is_named_with_the_collective_it_did_not_enter() -> None:
    (late,) = late_ranks([read_dump(dump({"7": 3}), 0), read_dump(dump({"7": 2}), 1)])
    assert late.reason.sentence == "rank 1 did not enter all_reduce 3 of group mesh_7"


def test_the_stage_of_a_pipeline_that_did_not_send_is_named() -> None:
    """Stages 0 to 3 are ranks 4 to 7; stage 2 received and computes for ever."""
    stages = [
        pipeline(
            4, ("send 0->1", "completed"), ("send 0->1", "completed"), ("recv 0<-1", "scheduled")
        ),
        pipeline(
            5, ("recv 1<-0", "completed"), ("send 1->2", "completed"), ("recv 1<-2", "started")
        ),
        pipeline(6, ("recv 2<-1", "completed")),
        pipeline(7, ("recv 3<-2", "scheduled")),
    ]
    (late,) = late_ranks(stages)
    assert (late.rank, late.reason.code) == (6, "transfer-not-entered")
    assert (
        late.reason.sentence
        == "rank 6 has no send to rank 5 of group 5 in flight, which rank 5 waits for"
    )
    assert late_ranks([*stages[:2], *stages[3:]])[0].reason.code == "rank-left-no-dump"


def test_transfers_whose_partners_both_wait_blame_none() -> None:
    idle = [pipeline(6), pipeline(7)]
    assert (
        late_ranks(
            [pipeline(4, ("send 0->1", "started")), pipeline(5, ("recv 1<-0", "started")), *idle]
        )
        == []
    )
    crossed = [pipeline(4, ("send 0->1", "started")), pipeline(5, ("send 1->0", "started")), *idle]
    assert late_ranks(crossed) == []
    assert str(circular_wait(crossed)) == "ranks 4, 5 wait for each other in groups 5"


def test_a_rank_that_computes_is_late_before_ranks_that_wait_in_what_gloo_does_not_record() -> None:
    (late,) = late_ranks(
        [trace(0, True, dp=1), trace(1, True, dp=0), trace(2, False, dp=0), trace(3, True, dp=0)]
    )
    assert late.rank == 2


class Runs:
    """What a hostile node would have unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/hostile-dump",)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (pickle.dumps(Runs()), "asks for"),
        (pickle.dumps({"entries": [Runs()]}, protocol=0), "asks for"),
        # As long as all memory
        (b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.", "no whole pickle|BYTEARRAY8"),
        # An index that would be a table of 16 GB
        (b"\x80\x02}r\xff\xff\xff\x7f.", "no list of entries"),
        (b"\x80\x02" + b"](" * 5 + b"e", "no whole pickle"),
        (dump({"0": 3})[:-20], "no whole pickle"),
        (b"\x80\x02K\x01.", "no list of entries"),
        (b'{"entries": 1}', "no list of entries"),
        (b"{" * 100_000, "no JSON"),
        (b"\x80\x02" + b"0" * 10, "POP"),
    ],
)
def test_a_hostile_or_broken_dump_is_refused(content: bytes, complaint: str) -> None:
    with pytest.raises(NoDump, match=complaint):
        read_dump(content, 0)
    assert not Path("/tmp/hostile-dump").exists()


def test_malformed_dump_entries_are_ignored() -> None:
    entries = [
        1,
        None,
        {},
        {"process_group": "x", "collective_seq_id": "9"},
        {"collective_seq_id": 1 << 70},
    ]
    assert (
        read_dump(pickle.dumps({"entries": entries, "pg_config": {"0": 3}}, protocol=2), 0).groups
        == {}
    )


WATCHDOG = """\
[rank0]:[E1127 10:00:00.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout
[rank0]:[E1127 10:00:00.2 ProcessGroupNCCL.cpp:684] [PG ID 3 PG GUID 9(tp) Rank 0] Timeout at NCCL work: \
WorkNCCL(SeqNum=4711, OpType=ALLREDUCE, NumelIn=8)
[rank0]:[E1127 10:00:00.3 ProcessGroupNCCL.cpp:690] [PG ID 3 PG GUID 9(tp) Rank 0]  failure detected by watchdog at \
work sequence id: 4711 PG status: last enqueued work: 4711, last completed work: 4710
[rank1]:[E1127 10:00:00.3 ProcessGroupNCCL.cpp:690] [PG ID 3 PG GUID 9(tp) Rank 1]  failure detected by watchdog at \
work sequence id: 4710 PG status: last enqueued work: 4710, last completed work: 4710
"""


def test_the_lines_of_the_watchdog_name_the_rank(tmp_path: Path) -> None:
    (late,) = late_ranks(read_watchdog(WATCHDOG.splitlines()))
    assert late.reason.sentence == "rank 1 did not enter ALLREDUCE 4711 of group tp"
    log = tmp_path / "job.log"
    log.write_text(WATCHDOG)
    done = CliRunner().invoke(diagnose, [str(log)])
    assert done.exit_code == 1
    assert done.output.splitlines()[0] == late.reason.sentence


DUMP_SIGNAL = """\
[rank0]:[E1120 ProcessGroupNCCL.cpp:632] [PG 0 Rank 0] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=1583, OpType=ALLREDUCE, NumelIn=1)
[rank1]:[E1120 ProcessGroupNCCL.cpp:1537] [PG 0 Rank 1] Observed flight recorder dump signal from another rank.
[rank2]:[E1120 ProcessGroupNCCL.cpp:1598] [PG 0 Rank 2] Received a dump signal due to a collective timeout from \
rank 0 and we will try our best to dump the debug info. Last enqueued NCCL work: 1582, last completed NCCL work: 1582.
"""


def test_a_rank_that_was_asked_for_its_dump_is_where_its_last_enqueued_work_says() -> None:
    """A line without a number is no sign that its rank entered nothing."""
    (late,) = late_ranks(read_watchdog(DUMP_SIGNAL.splitlines()))
    assert late.reason.sentence == "rank 2 did not enter ALLREDUCE 1583 of group 0"


def test_diagnose_reads_a_folder_of_dumps(tmp_path: Path) -> None:
    for rank, count in enumerate((5, 5, 4)):
        (tmp_path / f"trace_{rank}").write_bytes(dump({"0": count}))
    done = CliRunner().invoke(diagnose, [str(tmp_path), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.output) == [
        {"rank": 2, "host": "", "reason": "rank 2 did not enter all_reduce 5 of group mesh_0"}
    ]
