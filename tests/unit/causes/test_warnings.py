"""What NCCL's and RCCL's warnings are about: the table, the script that writes it, and the lines of
a log.
"""

import csv
from pathlib import Path

import pytest

from scripts.nccl_warnings import RULES, TABLE, normalized, result_after, warnings_of
from seatrial.causes import classify

CLASSES = {"hardware", "link", "software", "user", "program"}
LINE = "node-a:1:2 [0] file.cc:12 NCCL WARN {}"


def rows() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_warning_has_a_class_a_cause_and_an_action() -> None:
    assert len(rows()) > 850
    for row in rows():
        (finding, *_) = classify([LINE.format(row["format"].replace("*", "7"))])
        assert row["class"] in CLASSES and row["severity"] in ("fatal", "note"), row
        assert finding.code != "log-warning" and finding.next_step and finding.host == "node-a", row


def test_warning_table_is_sorted_and_has_no_duplicates() -> None:
    formats = [row["format"] for row in rows()]
    assert formats == sorted(set(formats))
    assert all(row["first"] and row["last"] for row in rows())


def test_every_classification_rule_applies_to_some_warning() -> None:
    with RULES.open(encoding="utf-8", newline="") as file:
        rules = list(csv.DictReader(file))
    assert {rule["class"] for rule in rules} == CLASSES
    assert {(rule["class"], rule["severity"]) for rule in rules} <= {
        (row["class"], row["severity"]) for row in rows()
    }


@pytest.mark.parametrize(
    ("warning", "code", "severity"),
    [
        # Not after NET/IB: a paste may lack it
        ("Got async error event: port error", "log-port-error", "fatal"),
        # 2.18 to 2.22
        ("NET/IB : mlx5_0:1 Got async event : port error", "log-port-error", "fatal"),
        # 2.23 to 2.27
        ("NET/IB : mlx5_0:1 Got async error event: port error", "log-port-error", "fatal"),
        # Since 2.28
        ("NET/IB : mlx5_0:1 Got non-fatal async event: port error(10)", "log-link-flapped", "note"),
        ("NET/IB : mlx5_0:1 Got async error event: port active", "log-link-flapped", "note"),
        ("Mismatched NCCL version detected : rank 0 version 22703 rank 8 version 22809", "log-nccl-builds", "fatal"),
        (
            "P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case",
            "log-nvlink-p2p",
            "fatal",
        ),
        ("Failed to CUDA calloc 4194304 bytes", "log-nccl-hardware", "fatal"),
        (("NET/IB: Device 1 marked as failed. Initiating recovery? 1 (send comm=0x1, " "outstandingRecovery=0)"),
         "log-nccl-link", "note"),
        ("Broadcast : invalid root 9 (root should be in the 0..8 range)", "log-nccl-program", "fatal"),
        ("User asked for a minimum of 64 channels, limiting to 32", "log-nccl-user", "note"),
        ("words that no release prints", "log-warning", "note"),
    ],
)  # fmt: skip
def test_nccl_warning_is_classified_by_its_text(warning: str, code: str, severity: str) -> None:
    (finding,) = classify([LINE.format(warning)])
    assert (finding.code, finding.severity) == (code, severity)


def test_specific_cause_comes_before_generic_warning_classes() -> None:
    lines = [
        LINE.format("socketProgress: unheard of"),
        LINE.format("Broadcast : root argument is NULL"),
    ]
    named = (
        "node-b:1:2 [0] f.cc:1 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4> with "
        "status=12 opcode=0 len=0"
    )
    findings = classify([*lines, named])
    assert [finding.code for finding in findings][:2] == ["log-ib-timeout", "log-nccl-program"]


def test_the_script_reads_formats_of_several_lines_and_macros() -> None:
    source = """
      WARN("Call to " name " failed with %d, " \\
           "errno %s", x, y(1, 2)); \\
      return ncclSystemError;
    } else { WARN("ring %d%% full"); }
    """
    assert list(warnings_of(source)) == [
        ("Call to * failed with *, errno *", "ncclSystemError"),
        ("ring *% full", None),
    ]


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (", a);\n  return ncclInvalidArgument;\n}", "ncclInvalidArgument"),
        (");\n ret = ncclInternalError;\n goto fail;\n}", "ncclInternalError"),
        (");\n goto fail;\n}", ""),
        (");\n}\n return ncclSystemError;", None),
        (");\n WARN(\"more\");\n return ncclSystemError;", None),
    ],
)  # fmt: skip
def test_the_script_reads_what_the_code_returns_after_a_warning(
    code: str, result: str | None
) -> None:
    assert result_after(code) == result


def test_a_format_of_nothing_but_conversions_is_no_warning() -> None:
    assert normalized("%s : %d") == ""
    assert normalized(r"first %5.2f\n second") == "first *"


def test_warning_table_holds_no_path_of_the_machine_that_made_it() -> None:
    assert not any(str(Path.home()) in row["format"] for row in rows())
