"""Bad requirements are one line each that names file, field and what is legal; nothing is
written.
"""

from typing import Any

import pytest

from seatrial.certificate.requirements import SHIPPED, SHIPPED_FOLDER, exact, find, load, scale
from tests.unit.certificate.conftest import BUSBW, Site, judgement, run_of

RUN = run_of(judgement(60.0))
WAIVER = {"id": "BW", "name": "A", "reason": "b", "until": "2999-01-01"}


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (
            {"unit": "ms"},
            (
                "requirements.0.unit: is 'ms', but busbw is measured in 'GB/s'; legal: "
                "'GB/s', 'MB/s', 'Gb/s'"
            ),
        ),
        ({"unit": None}, "requirements.0.unit: is required with at_least and at_most"),
        ({"metric": None}, "requirements.0.metric: is required with at_least and at_most"),
        ({"limit": {}}, "must have exactly one of at_least, at_most, equals"),
        (
            {"limit": {"at_least": 1, "at_most": 2}},
            "must have exactly one of at_least, at_most, equals",
        ),
        ({"limit": {"at_least": True}}, "requirements.0.limit.at_least: must be a number, is true"),
        (
            {"limit": {"at_least": float("inf")}},
            "requirements.0.limit.at_least: must be a finite number",
        ),
        ({"limit": {"equals": "pass"}}, "requirements.0.metric: must be left out with equals"),
        ({"limit": {"equals": "fail"}}, "requirements.0.limit.equals: must be 'pass', is 'fail'"),
        ({"limt": {}}, "requirements.0.limt: unknown field; nearest: limit"),
        ({"id": "a/b"}, "requirements.0.id: must match"),
        (
            {"subject": "rack"},
            "requirements.0.subject: must be 'cluster', 'node', 'gpu', 'link' or 'group'",
        ),
        (
            {"conditions": {"message_bytes": "1X"}},
            "requirements.0.conditions: must be a size in bytes",
        ),
        ({"text": "x" * 501}, "requirements.0.text: must have at most 500 characters"),
    ],
)
def test_a_bad_requirement_is_named(site: Site, more: dict[str, Any], line: str) -> None:
    requirement = {name: value for name, value in {**BUSBW, **more}.items() if value is not None}
    status, output = site.certify([RUN], [requirement])
    assert status == 2
    assert f"{site.folder / 'given.yaml'}: line " in output
    assert line in output
    assert not site.certificate.exists()


@pytest.mark.parametrize(
    ("requirements", "exceptions", "line"),
    [
        ([BUSBW, BUSBW], [], "id 'BW' appears 2 times"),
        ([BUSBW], [{**WAIVER, "id": "BV"}], "exceptions: id 'BV' is no requirement; nearest: BW"),
        ([BUSBW], [WAIVER, WAIVER], "exceptions: id 'BW' appears 2 times"),
        ([BUSBW], [{**WAIVER, "until": "soon"}], "exceptions.0.until: "),
        ([], [], "requirements: must have 1 or more entries"),
        (
            [{**BUSBW, "id": f"r{n}"} for n in range(501)],
            [],
            "requirements: must have at most 500 entries",
        ),
    ],
)
def test_inconsistent_requirements_and_exceptions_are_bad_input(
    site: Site, requirements: list[dict[str, Any]], exceptions: list[dict[str, Any]], line: str
) -> None:
    status, output = site.certify([RUN], requirements, exceptions=exceptions)
    assert (status, line in output) == (2, True), output


def test_equals_limit_accepts_only_conditions_of_the_run(site: Site) -> None:
    requirement = {
        "id": "P",
        "text": "x",
        "check": "c",
        "limit": {"equals": "pass"},
        "conditions": {"operation": "x"},
    }
    status, output = site.certify([RUN], [requirement])
    assert status == 2
    assert (
        "operation is of a measurement; legal with equals: nodes, hardware, suite, cluster"
        in output
    )


def test_a_run_counts_once_and_no_folder_is_overwritten(site: Site) -> None:
    assert site.certify([RUN, RUN], [BUSBW]) == (2, "RUN run-1: is given twice; give each run once")
    assert site.certify([RUN], [BUSBW])[0] == 0
    status, output = site.certify([RUN], [BUSBW])
    assert (status, "is there already; give a new or empty folder" in output) == (2, True)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_requirements_are_valid_and_their_limits_have_a_source(name: str) -> None:
    requirements = load(find(name)).requirements
    assert all(each.source for each in requirements if not each.limit.equals)
    assert {path.stem for path in SHIPPED_FOLDER.iterdir()} == set(SHIPPED)


@pytest.mark.parametrize(
    ("unit", "to", "factor"),
    [
        ("GB/s", "Gb/s", "8"),
        ("us", "ms", "0.001"),
        ("", "%", "100"),
        ("GB/s", "ms", None),
        ("W", "W", "1"),
        ("W", "", None),
    ],
)
def test_units_convert_exactly_or_not_at_all(unit: str, to: str, factor: str | None) -> None:
    conversion = scale(unit, to)
    assert conversion == (None if factor is None else exact(float(factor)))


def test_share_is_converted_to_an_exact_decimal() -> None:
    assert exact(0.95) * 100 == 95
