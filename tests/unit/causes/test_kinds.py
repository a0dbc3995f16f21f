"""Lines of programs around NCCL: the cause that each names, its host and its rank; the specific one
first.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from seatrial.causes import classify

GOLDEN = Path(__file__).parents[2] / "golden"
PRINTED = tomllib.loads((GOLDEN / "causes.toml").read_text())["printed"]


@pytest.mark.parametrize("printed", PRINTED, ids=lambda printed: printed["code"])
def test_the_first_finding_names_cause_host_and_rank(printed: dict[str, Any]) -> None:
    first = classify(printed["text"].splitlines())[0]
    expected = (printed["code"], printed.get("host"), printed.get("rank"))
    assert (first.code, first.host, first.rank) == expected, first
    assert printed["words"] in first.cause and first.next_step


@pytest.mark.parametrize(
    "line",
    [
        "if you see NCCL WARN Cuda failure 'invalid argument', restart fabric manager",
        "the docs of transport.cc say: NCCL WARN Cuda failure",
        (
            "slurmstepd: error: unable to write 1 bytes to cgroup memory.force_empty: Device "
            "or resource busy"
        ),
        "[ 900.1] mlx5_core 0000:5e:00.0 ens1f0: TX timeout is 15000 ms",
        "kubelet: no healthy devices present in the demo, which is unexpected",
        "Couldn't allocate MRAM for the display",
        "node-3 went down yesterday, and its switch is Not responding",
        "the step /src/host/init returned a non-zero status: 7",
        "bad: line 12 NCCL WARN Cuda failure 'invalid argument' is what you may see",
        '    raise RuntimeError(f"NCCL error: {error_str}")',
        "the docs say that an NCCL error may be an unhandled cuda error",
        "btl_tcp.c is where Open MPI prints Connection reset by peer",
        "node-2 kernel: [ 2484.3] {359}[Hardware Error]: event severity: corrected",
    ],
)
def test_lines_that_only_quote_an_error_name_no_fatal_cause(line: str) -> None:
    assert all(not finding.fatal or finding.unknown for finding in classify([line]))


@pytest.mark.parametrize(
    "line",
    [
        "mlx5_core 0000:75:00.0: 126.0 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x16 "
        "link at 0000:70:01.0 (capable of 252.0 Gb/s with 16.0 GT/s PCIe x16 link)",
        "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1",
        "Buffer I/O error on dev sr0, logical block 0, async page read",
    ],
)
def test_a_slower_slot_and_a_drive_without_a_disk_are_no_findings(line: str) -> None:
    assert classify([f"[   22.3] {line}"]) == []


def test_a_nic_on_fewer_pcie_lanes_is_a_note_with_its_address() -> None:
    (finding,) = classify(
        [
            "[   22.3] mlx5_core 0000:75:00.0: 126.0 Gb/s available PCIe bandwidth, limited by 16.0 GT/s "
            "PCIe x8 link at 0000:70:01.0 (capable of 252.0 Gb/s with 16.0 GT/s PCIe x16 link)"
        ]
    )
    assert (finding.code, finding.severity) == ("log-pcie-narrow", "note")
    assert finding.cause == "PCIe lanes are missing (0000:75:00.0)"


def test_fatal_warning_is_listed_beside_a_note_with_the_same_code() -> None:
    of_class = "a:1:2 [0] net_ib.cc:1 NCCL WARN {}"
    lines = map(
        of_class.format,
        ("NET/IB : mlx5_0:1 unknown event type (9)", "NET/Socket : socket progress error"),
    )
    fatal, note = classify(lines)
    assert (fatal.code, fatal.severity, note.code, note.severity) == (
        "log-nccl-link",
        "fatal",
        "log-nccl-link",
        "note",
    )


def test_cause_of_an_uncaught_exception_comes_before_the_termination() -> None:
    lines = [
        "terminate called after throwing an instance of 'c10::Error'",
        "  what():  CUDA error: out of memory",
    ]
    assert [finding.code for finding in classify(lines)] == ["log-gpu-memory", "log-terminated"]


PORT = (
    "[2026-09-17 {time}] node-2:311:405 [0] transport/net_ib.cc:199 NCCL WARN NET/IB : mlx5_3:1 "
    "Got async error event:"
    " port {state}"
)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([("15:16:23", "error")], "[2026-09-17 15:16:23] node-2"),
        (
            [("15:16:23", "error"), ("15:16:31", "active"), ("15:23:34", "error")],
            "down 15:16:23, up 8 s later, down 15:23:34",
        ),
        ([("15:16:23", "error"), ("17:16:23", "active")], "down 15:16:23, up 17:16:23"),
    ],
)
def test_a_flapping_port_is_listed_with_its_times(
    events: list[tuple[str, str]], words: str
) -> None:
    first = classify([PORT.format(time=time, state=state) for time, state in events])[0]
    assert (first.code, first.host) == ("log-port-error", "node-2")
    assert first.cause.endswith("(mlx5_3:1)") and first.evidence.startswith(words)


def test_versions_of_nccl_are_shown_as_people_write_them() -> None:
    warning = "Mismatched NCCL version detected : rank 0 version 22703 rank 8 version 2708"
    (first, *_) = classify([f"node-a:1:2 [0] init.cc:1 NCCL WARN {warning}"])
    assert "(rank 0: 2.27.3, rank 8: 2.7.8)" in first.cause


def test_a_corrupted_heap_names_the_version_of_nccl() -> None:
    (first, *_) = classify(["NCCL version 2.21.5+cuda12.8", "free(): corrupted unsorted chunks"])
    assert first.evidence == "NCCL 2.21.5; free(): corrupted unsorted chunks"
