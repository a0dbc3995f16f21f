"""How old the measurements of links are, as `seatrial history --links` shows them."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from seatrial.cli.past_runs import history as command
from seatrial.history import open_store
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check, RunResult
from seatrial.model.verdict import Verdict
from seatrial.report.listings import link_ages
from tests.unit.history.stored import START, a_run

NODES = tuple({"name": f"node-{i}", "cpu_model": "EPYC"} for i in range(4))


def night(number: int, *links: str) -> RunResult:
    streams = tuple(
        Measurement("tcp_stream", 900.0, "MB/s", Subject("link", name), better=None)
        for name in links
    )
    return a_run(
        number, checks=[Check("connectivity", Verdict.PASS, Reason(), 1.0, streams)], nodes=NODES
    )


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/history.sqlite"
    monkeypatch.setenv("SEATRIAL_HISTORY", url)
    with open_store(url) as store:
        store.save(night(1, "node-0--node-3", "node-0--node-2"), Path())
        store.save(night(9, "node-0--node-1"), Path())
        store.save(night(10, "node-0--node-2", "node-7--node-8"), Path())


def seatrial(*arguments: str) -> str:
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.usefixtures("history")
def test_ages_count_from_the_newest_run_and_only_its_nodes() -> None:
    lines = seatrial("lab", "--links").splitlines()
    assert lines[0] == "lab: 6 links between 4 nodes"
    rows = [line.split() for line in lines[2:7]]
    # A day, a week, a month, a year, never
    assert [row[-1] for row in rows] == ["1", "2", "3", "3", "3"]
    assert [line.split()[0] for line in lines[8:]] == [
        "node-0--node-3",
        "node-0--node-1",
        "node-0--node-2",
    ]


@pytest.mark.usefixtures("history")
def test_json_has_every_link() -> None:
    document = json.loads(seatrial("lab", "--links", "--json"))
    assert document["now"] == (START + timedelta(days=10)).isoformat()
    assert document["links"]["node-0--node-3"] == (START + timedelta(days=1)).isoformat()
    assert sorted(name for name, started in document["links"].items() if started is None) == [
        "node-1--node-2",
        "node-1--node-3",
        "node-2--node-3",
    ]


@pytest.mark.usefixtures("history")
def test_csv_has_every_link_with_its_age() -> None:
    header, first, *_ = seatrial("lab", "--links", "--csv").splitlines()
    assert header == "link,last_measured,age_days"
    assert first.split(",")[::2] == ["node-0--node-1", "1.0"]


@pytest.mark.usefixtures("history")
def test_links_without_a_cluster_are_bad_input() -> None:
    done = CliRunner().invoke(command, ["--links"])
    assert "--links needs a CLUSTER" in str(done.exception)


def test_a_run_of_one_node_has_no_links() -> None:
    with open_store("sqlite://") as store:
        store.save(a_run(1, nodes=NODES[:1]), Path())
        assert link_ages(store.runs()[0], ["node-0"], store.measured("lab", "link")).empty


def test_link_age_is_found_for_a_node_name_with_the_link_separator() -> None:
    with open_store("sqlite://") as store:
        store.save(night(1, "pool--a--pool--b"), Path())
        ages = link_ages(store.runs()[0], ["pool--b", "pool--a"], store.measured("lab", "link"))
    assert ages[["link", "age_days"]].values.tolist() == [["pool--a--pool--b", 0.0]]
