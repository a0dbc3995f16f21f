"""Reasons: code and values make the sentence; joined and placed ones keep the code; files and the
store carry it.
"""

import ast
import copy
import csv
import json
import pickle
import string
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import pytest
from click.testing import CliRunner

from seatrial import causes
from seatrial.checks.connectivity.findings import Findings
from seatrial.cli.app import app
from seatrial.history import open_store
from seatrial.model.errors import InputError, LaunchError, NodesError
from seatrial.model.reason import (
    Reason,
    caused,
    extended,
    join,
    placed,
    rewritten,
    uncoded,
    unplaced,
)
from seatrial.model.result import Check, CheckResult, RunResult, Suspect
from seatrial.model.verdict import Verdict
from seatrial.runs.explanations import AREAS, CATALOG
from seatrial.runs.load import load_result
from seatrial.text.docs import with_addresses
from seatrial.text.headline import conclude
from tests.sources import ROOT, modules, nodes
from tests.unit.collectives.fake_mpirun import make_testbed

START = datetime(2026, 1, 1, tzinfo=UTC)
REFUSED = Reason.of("ssh-refused", address="10.0.0.1", port=222)
TIMEOUT = Reason.of("ssh-timeout", address="10.0.0.2", port=222)


def _fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def _sources() -> list[Path]:
    """The modules that make reasons."""
    return [path for path in modules() if path.name != "explanations.py"]


def _constants(path: Path) -> set[str]:
    return {
        node.value
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _made(path: Path) -> Iterator[tuple[str, str, set[str] | None]]:
    """Where code makes a reason, or an error with one, by a literal code.

    Place, code, and the names of the values if all are literal.
    """
    for node in nodes(path):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=owner), attr="of"),
                args=[ast.Constant(value=str(code))],
                keywords=values,
            ) if owner == "Reason" or owner.endswith("Error"):
                names = {value.arg for value in values if value.arg}
                yield (
                    f"{path.name}:{node.lineno}",
                    code,
                    names if all(v.arg for v in values) else None,
                )


def test_every_reason_in_the_code_is_explained_with_its_values() -> None:
    made = [each for path in _sources() for each in _made(path)]
    assert len(made) > 20
    for place, code, values in made:
        assert code in CATALOG, f"{place}: {code} is not explained"
        assert values is None or _fields(CATALOG[code].template) <= values, (
            f"{place}: {code} lacks a value"
        )


def test_every_code_is_used() -> None:
    constants = {constant for path in _sources() for constant in _constants(path)}
    # Judge, builders.failures, localize.findings
    prefixes = ("worse-than-", "image-build-", "localize-")
    made_of_parts = {code for code in CATALOG if code.startswith(prefixes)}
    assert set(CATALOG) - made_of_parts - set(causes.REASONS) <= constants
    assert len(CATALOG) == sum(map(len, AREAS.values())), "a code is in two areas"


def test_reason_table_is_grouped_by_area_and_complete() -> None:
    with (ROOT / "seatrial/model/reasons.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    places = [row["area"] for row in rows]
    assert [area for area, _ in groupby(places)] == list(dict.fromkeys(places)), (
        "an area is in two places"
    )
    assert len({row["code"] for row in rows}) == len(rows), "a code is there twice"
    assert all(row["sentence"] and row["meaning"] for row in rows)


def test_former_reason_codes_are_still_explained() -> None:
    former = [code for explanation in CATALOG.values() for code in explanation.formerly]
    assert len(former) == len({*former} - {*CATALOG})
    for code in former:
        assert CliRunner().invoke(app, ["explain", code], catch_exceptions=False).exit_code == 0


def test_an_unknown_code_or_value_is_an_error() -> None:
    with pytest.raises(KeyError):
        Reason.of("no-such-code")
    with pytest.raises(KeyError):
        Reason.of("ssh-refused", address="10.0.0.1")


def test_placeholders_in_values_are_not_expanded() -> None:
    assert (
        str(Reason.of("ssh-session", problem="{address} %s {0}")) == "no session: {address} %s {0}"
    )


def test_joined_and_placed_reasons_keep_codes() -> None:
    both = join((placed("node-1", REFUSED), placed("node-2", TIMEOUT), placed("node-1", REFUSED)))
    assert (both.code, both.values) == (REFUSED.code, REFUSED.values)
    assert [part.code for part in both.parts] == ["ssh-refused", "ssh-timeout"]
    assert both.sentence == f"node-1: {REFUSED}; node-2: {TIMEOUT}"
    assert join((both, uncoded("a text"))).sentence.count(";") == 2
    assert join((uncoded("a text"), Reason(), REFUSED)).code == "ssh-refused"
    passed = Reason.of("all-pass", checks="connectivity")
    assert join((uncoded("a text"), passed, REFUSED)).code == "ssh-refused"
    assert join((uncoded("a text"), passed)).code == "all-pass"
    assert not join(())


def test_reasons_are_equal_by_code_and_values() -> None:
    assert Reason.of("ssh-refused", port=222, address="10.0.0.1") == REFUSED
    assert Reason.of("ssh-refused", address="10.0.0.9", port=222) != REFUSED
    assert Reason("ssh-refused", {}, "a") != Reason("ssh-refused", {}, "b")
    assert Reason("ssh-refused", {}, REFUSED.sentence) in {REFUSED}


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (copy.deepcopy(REFUSED), str(REFUSED)),
        (pickle.loads(pickle.dumps(REFUSED)), str(REFUSED)),
        (rewritten(REFUSED, lambda text: text[:5]), str(REFUSED)[:5]),
        (extended(REFUSED, " (node-1)"), f"{REFUSED} (node-1)"),
        (extended(REFUSED, ""), str(REFUSED)),
        (unplaced(placed("node-1", REFUSED)), str(REFUSED)),
        (unplaced(REFUSED), str(REFUSED)),
        (LaunchError(REFUSED).reason, str(REFUSED)),
        (NodesError({"node-1": REFUSED}).reason, f"node-1: {REFUSED}"),
    ],
)
def test_a_reason_that_is_copied_cut_extended_or_raised_keeps_its_code(
    changed: Reason, text: str
) -> None:
    assert (changed.sentence, changed.code, changed.values.keys()) == (
        text,
        "ssh-refused",
        REFUSED.values.keys(),
    )
    assert changed.values == REFUSED.values or len(text) == 5


def test_a_reason_without_a_code_never_gets_one() -> None:
    assert (
        extended(uncoded("a text"), " (node-1)").code is LaunchError("a text").reason.code is None
    )
    assert unplaced(uncoded("node-1: a text")) == uncoded("node-1: a text")


def test_a_reason_that_names_its_cause_has_the_code_of_the_cause() -> None:
    late = Reason.of("launch-timeout", limit_s="1", setting="start_timeout_s", story=REFUSED)
    named = caused(late, REFUSED)
    assert (named.sentence, named.code, named.values) == (
        late.sentence,
        "ssh-refused",
        REFUSED.values,
    )
    assert caused(late, uncoded("a text")) == caused(late, None) == late


def test_a_node_that_is_blamed_is_named_with_its_code() -> None:
    findings = Findings(make_testbed(2))
    findings.blame_nodes({"node-0": REFUSED})
    assert findings.problems == [placed("node-0", REFUSED)]
    assert [node.name for node in findings.testbed.nodes] == ["node-1"]


def test_cause_common_to_several_steps_is_stated_once() -> None:
    missing = Reason.of("history-driver-missing", place="x", action="open", problem="y")
    checks = [
        Check("image", Verdict.NOT_RUN, missing),
        Check("launch", Verdict.NOT_RUN, Reason.of("prerequisite-failed", step="image")),
        Check("upload", Verdict.NOT_RUN, missing),
    ]
    verdict, reason = conclude(checks)
    assert (verdict, reason.sentence, reason.code) == (
        Verdict.NOT_RUN,
        f"image: {missing}",
        "history-driver-missing",
    )


def _run() -> RunResult:
    blamed = Suspect("node", "node-1", 1.0, REFUSED)
    unjudged = CheckResult(Verdict.FAIL, TIMEOUT, (blamed,))
    check = Check("connectivity", Verdict.FAIL, REFUSED, suspects=(blamed,), raw_result=unjudged)
    verdict, reason = conclude([check])
    return RunResult(
        "run-1", "lab", "quick", START, START, verdict, reason, checks=[check], suspects=[blamed]
    )


def test_run_json_has_the_codes_and_they_are_read_back_and_may_be_missing(tmp_path: Path) -> None:
    document = _run().to_dict()
    assert (
        document["code"]
        == document["checks"][0]["code"]
        == document["suspects"][0]["code"]
        == "ssh-refused"
    )
    assert document["checks"][0]["found"]["code"] == "ssh-timeout"
    (tmp_path / "run.json").write_text(json.dumps(document))
    assert load_result(tmp_path).to_dict() == document
    for part in (
        document,
        document["checks"][0],
        document["checks"][0]["found"],
        document["suspects"][0],
    ):
        del part["code"], part["values"]
    (tmp_path / "run.json").write_text(json.dumps(document))
    result = load_result(tmp_path)
    assert (result.reason.code, result.reason.sentence) == (None, f"node-1 (100 % sure): {REFUSED}")


def test_malformed_reason_code_in_run_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(_run().to_dict() | {"code": "Not a\x1b code"}))
    with pytest.raises(InputError, match=r"run\.json: code"):
        load_result(tmp_path)


def test_reason_codes_are_stored_in_the_history(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path / 'history.sqlite'}") as store:
        store.save(_run(), tmp_path)
        stored = store.result("run-1")
    assert stored is not None
    document = stored.to_dict()
    assert (
        document["code"]
        == document["checks"][0]["code"]
        == document["suspects"][0]["code"]
        == "ssh-refused"
    )
    assert document["checks"][0]["found"]["suspects"][0]["code"] == "ssh-refused"


def _whole(reason: Reason) -> tuple[object, ...]:
    """All that is kept of a reason."""
    parts = [(part.code, part.values, part.sentence) for part in reason.parts]
    return reason.code, reason.values, reason.sentence, parts


def test_the_store_and_run_json_keep_values_parts_and_sentences(tmp_path: Path) -> None:
    joined = join((uncoded("a text"), placed("node-1", REFUSED), TIMEOUT))
    blamed = Suspect("node", "node-1", 1.0, join((REFUSED, TIMEOUT)), Verdict.FAIL)
    found = CheckResult(Verdict.FAIL, join((TIMEOUT, REFUSED)), (blamed,))
    check = Check("connectivity", Verdict.FAIL, joined, raw_result=found)
    reason = placed("connectivity", REFUSED)
    run = RunResult(
        "run-1",
        "lab",
        "quick",
        START,
        START,
        Verdict.FAIL,
        reason,
        checks=[check],
        suspects=[blamed],
    )
    (tmp_path / "run.json").write_text(json.dumps(run.to_dict()))
    with open_store(f"sqlite:///{tmp_path / 'history.sqlite'}") as store:
        store.save(run, tmp_path)
        stored = store.result("run-1")
        row = store.run("run-1")
    assert row is not None
    assert _whole(row.reason) == _whole(reason)
    for back in (stored, load_result(tmp_path)):
        assert back is not None
        assert back.to_dict()["suspects"] == run.to_dict()["suspects"]
        (again,) = back.checks
        assert _whole(back.reason) == _whole(reason)
        assert _whole(back.suspects[0].evidence) == _whole(blamed.evidence)
        assert _whole(again.reason) == _whole(joined)
        assert _whole(again.raw.reason) == _whole(found.reason)
        assert again.raw.to_dict() == found.to_dict()


@pytest.mark.parametrize(
    ("document", "code", "sentence"),
    [
        ({"code": "ssh-refused", "values": REFUSED.values, "reason": ""}, "ssh-refused", REFUSED),
        ({"code": "ssh-timeout", "values": {}}, "ssh-timeout", CATALOG["ssh-timeout"].pattern),
        ({"code": "not-yet-known", "reason": ""}, "not-yet-known", ""),
        ({"code": "not-yet-known", "reason": "a text"}, "not-yet-known", "a text"),
        ({"code": "Not a\x1b code", "reason": "a text"}, None, "a text"),
        ({"code": ["x"], "values": [1], "reason": {"a": 1}, "parts": 7}, None, ""),
        (None, None, ""),
        ("a text", None, ""),
    ],
)
def test_older_newer_or_malformed_stored_reasons_are_read(
    document: object, code: str | None, sentence: object
) -> None:
    reason = Reason.from_dict(document)
    assert (reason.code, reason.sentence) == (code, str(sentence))
    json.dumps(reason.to_dict())


def test_values_and_parts_of_a_stored_reason_are_typed_and_bounded() -> None:
    values: dict[str, object] = {"a": 1, "b": None, "c": []}
    part = {"reason": "x" * 2_000_000, "parts": [{"reason": "y"}]}
    reason = Reason.from_dict({"code": "c" * 999, "values": values, "parts": [part, 7]})
    assert reason.values == {"a": 1}
    assert reason.code == "c" * 100
    assert [(len(each.sentence), each.parts) for each in reason.parts] == [(1_000_000, ()), (0, ())]


def test_a_reason_whose_values_fit_no_template_has_a_sentence() -> None:
    assert Reason("ssh-refused").sentence == CATALOG["ssh-refused"].pattern


def test_explain_prints_meaning_and_next_step() -> None:
    for code, explanation in CATALOG.items():
        done = CliRunner().invoke(app, ["explain", code], catch_exceptions=False)
        assert done.exit_code == 0
        printed = " ".join(done.output.split())
        assert with_addresses(explanation.meaning) in printed, code
        assert ("next step" in printed) == bool(explanation.next_step), code
        assert with_addresses(explanation.next_step or "") in printed, code


def test_explain_prints_what_a_field_of_a_file_takes() -> None:
    done = CliRunner().invoke(app, ["explain", "platform.volumes.claim"], catch_exceptions=False)
    assert done.stdout.splitlines() == [
        "platform.volumes.claim",
        "  in         cluster file, kind pvc",
        "  meaning    ReadWriteMany, or ReadOnlyMany with read_only",
        "  legal      text",
        "  default    required",
    ]
    done = CliRunner().invoke(app, ["explain", "python", "--json"], catch_exceptions=False)
    fields = [(field["path"], *field["files"]) for field in json.loads(done.stdout)]
    assert ("platform.python", "cluster file, kind slurm", "cluster file, kind baremetal") in fields
    assert ("platform.python", "cluster file, kind runai") in fields
    suite = CliRunner().invoke(app, ["explain", "collectives.operations"], catch_exceptions=False)
    assert "  in         suite file\n" in suite.stdout
