"""The first NCCL for a GPU, and what a log says of an older one."""

import pytest

from seatrial.catalog.log_facts import older_nccl
from tests.unit.judge_traps.sweeplogs import HEALTHY, judged, log_text


@pytest.mark.parametrize(
    ("hardware", "version", "first"),
    [
        ("GB200-NVL72", "2.21.5", "2.25.1"),
        ("GB200-NVL72", "2.25.1", None),
        ("H100-SXM", "2.9.9", "2.15.1"),
        ("H100-SXM", "2.27.3", None),
        ("A100-SXM", "2.10.3", None),
        ("MI300X", "2.7.8", None),
        ("H100-SXM", None, None),
    ],
)
def test_nccl_too_old_for_the_hardware_is_named_with_the_first_version(
    hardware: str, version: str | None, first: str | None
) -> None:
    reason = older_nccl(hardware, version)
    assert (reason is None) == (first is None) and (first or "") in str(reason)


@pytest.mark.parametrize(
    "line",
    [
        "# nccl-tests version 2.17.1 nccl-headers=22703 nccl-library=21403",
        "node-0:100:100 [0] NCCL INFO NCCL version 2.14.3+cuda11.8",
    ],
)
def test_a_log_that_names_an_older_version_says_so_beside_its_numbers(line: str) -> None:
    judgement = judged(log_text(HEALTHY, before=[line]))
    assert (
        "NCCL 2.14.3 is older than 2.15.1, the first version for H100-SXM"
        in judgement.reason.sentence
    )
    newer = line.replace("21403", "22703").replace("2.14.3", "2.27.3")
    assert "is older" not in judged(log_text(HEALTHY, before=[newer])).reason.sentence
