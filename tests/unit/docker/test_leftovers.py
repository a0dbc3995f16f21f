"""Whose containers are left, by labels that anybody may have written."""

import time

import pytest

from seatrial.platforms.docker.plan import EXPIRES, KIND, MADE, OWNER
from seatrial.platforms.docker.platform import is_abandoned
from seatrial.platforms.state import this_owner

LONG_AGO, LATER = "1000000000", "99999999999"


@pytest.fixture(autouse=True)
def _no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1)  # the state of a plain user is in the test's own folder


def own(made: str) -> dict[str, str]:
    return {OWNER: this_owner(KIND), MADE: made, EXPIRES: LATER}


def test_own_containers_without_a_run_are_left_after_a_minute() -> None:
    assert is_abandoned("r1", own(LONG_AGO))
    assert not is_abandoned("r1", own(str(int(time.time()))))


def test_those_of_somebody_else_are_left_when_their_time_is_over() -> None:
    assert is_abandoned("r1", {OWNER: "other/1", MADE: LONG_AGO, EXPIRES: LONG_AGO})
    assert not is_abandoned("r1", {OWNER: "other/1", MADE: LONG_AGO, EXPIRES: LATER})


@pytest.mark.parametrize("value", ["", "never", "-1", "1e3", "٣", "9" * 40])
def test_a_label_that_is_no_time_makes_nothing_left(value: str) -> None:
    assert not is_abandoned("r1", {OWNER: "other/1", EXPIRES: value})
