"""What every platform promises, on bare metal: the tests of tests/contract, on hosts with sshd of their own."""

from collections.abc import Iterator

import pytest

from seatrial.config.run import Run
from seatrial.model.testbed import Testbed
from seatrial.platforms import Platform, platform_for
from tests.contract.test_platforms import (
    test_a_kept_run_is_a_leftover_when_its_time_is_over,
    test_a_launched_testbed_answers,
    test_a_living_run_is_no_leftover,
    test_a_run_that_is_over_is_not_found,
    test_a_run_that_never_came_up_has_nothing_to_keep_or_collect,
    test_a_stranger_finds_the_same_testbed,
    test_nodes_reach_each_other_by_address,
    test_rendering_changes_nothing_and_says_the_same_twice,
    test_teardown_needs_nothing_in_memory_and_may_come_twice,
    test_teardown_of_a_run_that_never_was,
    test_the_log_of_every_nodes_sshd_is_collected,
)

__all__ = [
    "test_a_kept_run_is_a_leftover_when_its_time_is_over",
    "test_a_launched_testbed_answers",
    "test_a_living_run_is_no_leftover",
    "test_a_run_that_is_over_is_not_found",
    "test_a_run_that_never_came_up_has_nothing_to_keep_or_collect",
    "test_a_stranger_finds_the_same_testbed",
    "test_nodes_reach_each_other_by_address",
    "test_rendering_changes_nothing_and_says_the_same_twice",
    "test_teardown_needs_nothing_in_memory_and_may_come_twice",
    "test_teardown_of_a_run_that_never_was",
    "test_the_log_of_every_nodes_sshd_is_collected",
]


@pytest.fixture
def platform(run: Run) -> Platform:
    return platform_for(run.cluster)


@pytest.fixture
def stranger(run: Run) -> Platform:
    return platform_for(run.cluster)


@pytest.fixture
def testbed(platform: Platform, run: Run) -> Iterator[Testbed]:
    try:
        yield platform.launch(run)
    finally:
        platform.teardown(run.run_id)
