"""`seatrial judge FILE`: what the log names of the cluster, and options that fill a gap or
contradict.
"""

from pathlib import Path

import pytest

from seatrial.catalog.hardware_names import find_hardware, gpu_model
from seatrial.logs.cluster import LogsConfig, claim_of
from seatrial.model.verdict import Verdict
from seatrial.nccl import parse_text
from tests.command_line import command
from tests.unit.judge_traps.sweeplogs import HEALTHY, judged, log_text

NO_OPTIONS = LogsConfig()
SXM, PCIE, MI210 = "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "AMD Instinct MI210"
REMOTE = (
    "node-0: Test NCCL failure common.cu:1279 'remote process exited or there was a network "
    "error / '"
)


def of_model(text: str, model: str = SXM) -> str:
    return text.replace("NVIDIA GPU", model)


@pytest.mark.parametrize(
    ("ranks", "nodes", "claimed"),
    [
        (8, 1, ("H100-SXM", 1, 8)),
        (16, 2, ("H100-SXM", 2, 8)),
        (4, 4, ("H100-SXM", 4, 1)),
        (8, 2, ("H100-SXM", 2, 4)),
        (14, 2, ("H100-SXM", 2, None)),  # a GPU may be missing
    ],
)
def test_hardware_nodes_and_gpus_are_read_from_the_header(
    ranks: int, nodes: int, claimed: tuple[object, ...]
) -> None:
    (sweep,) = parse_text(of_model(log_text(HEALTHY, ranks, nodes)), "log")
    claim = claim_of(sweep, [sweep], NO_OPTIONS)
    assert (claim.hardware, claim.nodes, claim.gpus_per_node) == claimed
    assert not claim.is_whole


def test_two_ranks_of_one_host_name_and_device_are_on_two_nodes() -> None:
    text = of_model(log_text(HEALTHY, 16, 2)).replace("on node-1", "on node-0")
    (sweep,) = parse_text(text, "log")
    assert claim_of(sweep, [sweep], NO_OPTIONS).nodes == 2


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, Verdict.PASS), (0.8, Verdict.DEGRADED), (0.2, Verdict.FAIL)]
)
def test_log_without_options_is_judged_by_the_catalog_for_its_gpus(
    factor: float, verdict: Verdict
) -> None:
    result = judged(of_model(log_text([factor * value for value in HEALTHY])), NO_OPTIONS)
    assert result.verdict is verdict, result.reason
    assert "catalog" in {j.source for check in result.checks for j in check.judgements}


@pytest.mark.parametrize(
    ("algorithm", "factor", "verdict"),
    [
        ("Tree", 0.5, Verdict.PASS),  # 240 GB/s: a healthy node reaches half of NVLS with it
        ("Tree", 0.2, Verdict.DEGRADED),
        ("NVLS", 0.5, Verdict.FAIL),
    ],
)
def test_a_tree_inside_a_node_is_not_held_to_numbers_of_nvls(
    algorithm: str, factor: float, verdict: Verdict
) -> None:
    text = log_text([factor * value for value in HEALTHY], before=[f"NCCL_ALGO={algorithm}"])
    result = judged(of_model(text), NO_OPTIONS)
    assert result.verdict is verdict, result.reason


@pytest.mark.parametrize(("gpus", "verdict"), [(2, Verdict.DEGRADED), (4, Verdict.PASS)])
def test_bridges_of_pairs_do_not_join_four_gpus(gpus: int, verdict: Verdict) -> None:
    """45 GB/s is what PCIe 5 carries: two H100 NVL have a bridge of 300 GB/s, four of them none."""
    text = of_model(log_text([45.0] * len(HEALTHY), gpus), "NVIDIA H100 NVL")
    result = judged(text, LogsConfig(gpus_per_node=gpus))
    assert result.verdict is verdict, result.reason


def test_seven_of_eight_gpus_and_half_a_node_are_told_apart() -> None:
    assert judged(of_model(log_text(HEALTHY, 7)), NO_OPTIONS).verdict is Verdict.INCONCLUSIVE
    assert judged(of_model(log_text(HEALTHY, 4)), NO_OPTIONS).verdict is Verdict.PASS
    assert (
        judged(of_model(log_text(HEALTHY, 4)), LogsConfig(None, 1)).verdict is Verdict.INCONCLUSIVE
    )


def test_log_without_host_names_asks_for_the_nodes_option() -> None:
    text = "\n".join(
        line for line in log_text(HEALTHY).splitlines() if not line.startswith("#  Rank")
    )
    result = judged(text, NO_OPTIONS)
    assert (result.verdict, "give --nodes" in result.reason.sentence) == (
        Verdict.INCONCLUSIVE,
        True,
    )
    assert judged(text, LogsConfig("H100-SXM", 1)).verdict is Verdict.PASS


# The second does not depend on the ranks
@pytest.mark.parametrize("kept", ["float     sum", "float"])
def test_rows_without_a_header_are_inconclusive_and_show_sizes_and_plateau(kept: str) -> None:
    """Without a header the number of nodes is unknown; so are the ranks where busbw does not show
    them.
    """
    rows = [
        line.replace("float     sum", kept)
        for line in log_text(HEALTHY).splitlines()
        if " sum " in line
    ]
    result = judged(
        "\n".join([*rows, "# Out of bounds values : 0 OK", "# Avg bus bandwidth : 300"]), NO_OPTIONS
    )
    assert result.verdict is Verdict.INCONCLUSIVE, result.reason
    for words in ("give --nodes", "5 sizes from", "plateau 4"):
        assert words in result.reason.sentence


@pytest.mark.parametrize("kept", [1, 8])
def test_header_cut_to_the_first_of_many_ranks_is_no_missing_rank(kept: int) -> None:
    cut = [f"#  Rank {rank} " for rank in range(kept, 512)]
    whole = of_model(log_text(HEALTHY, 512, 64)).splitlines()
    text = "\n".join(line for line in whole if not line.startswith(tuple(cut)))
    result = judged(text, NO_OPTIONS)
    assert result.verdict is Verdict.INCONCLUSIVE, result.reason
    assert "on how many nodes" in str(result.reason) and "--nodes" in str(result.reason)


def test_wrong_elements_and_error_causes_count_without_a_header() -> None:
    rows = [line for line in log_text(HEALTHY, wrong=1).splitlines() if " sum " in line]
    assert judged("\n".join(rows), NO_OPTIONS).verdict is Verdict.CORRUPT
    (row, *_) = (line for line in log_text(HEALTHY).splitlines() if " sum " in line)
    assert judged(f"{row}\n{REMOTE}", NO_OPTIONS).reason.code == "log-nccl-remote"


@pytest.mark.parametrize(
    "config", [NO_OPTIONS, LogsConfig("MI300X", 1), LogsConfig("H100-SXM", 4, 8, "IB-8x400G")]
)
@pytest.mark.parametrize("rows", [True, False])
def test_error_cause_is_named_whatever_the_options_say(config: LogsConfig, rows: bool) -> None:
    lines = of_model(log_text(HEALTHY), MI210).splitlines()[: -4 if rows else 11]
    result = judged("\n".join([*lines, REMOTE]), config)
    assert result.verdict is Verdict.FAIL, result.reason
    assert "a remote process exited" in result.reason.sentence.partition(";")[0]


def test_log_from_other_hardware_than_claimed_is_inconclusive() -> None:
    for model in (MI210, PCIE):
        result = judged(of_model(log_text(HEALTHY), model), LogsConfig("H100-SXM", 1, 8))
        assert (result.verdict, f"of {model}, not of H100-SXM" in result.reason.sentence) == (
            Verdict.INCONCLUSIVE,
            True,
        )


@pytest.mark.parametrize("config", [NO_OPTIONS, LogsConfig("H100-SXM", 1, 8)])
def test_one_gpu_of_another_model_is_named(config: LogsConfig) -> None:
    text = of_model(log_text(HEALTHY)).replace(f"[0x03] {SXM}", f"[0x03] {PCIE}")
    result = judged(text, config)
    assert result.verdict is Verdict.DEGRADED
    assert (
        "7 ranks have H100-SXM, and others do not: H100-PCIE at rank 3 on node-0"
        in result.reason.sentence
    )


@pytest.mark.parametrize(
    ("name", "hardware", "line"),
    [
        ("H100-SXM", "H100-SXM", ""),
        ("H100", "H100-SXM", "taken as H100-SXM"),
        ("h100-sxm5", "H100-SXM", "taken as H100-SXM"),
        ("8xH100", "H100-SXM", "taken as"),
        ("GB200", "GB200-NVL72", "taken as GB200-NVL72"),
        ("B300-SXM", "B300", "taken as B300"),
        ("mi300x", "MI300X", "taken as MI300X"),
        ("mi325x", "MI325X", "taken as MI325X"),
        ("MI210", "MI210", "nearest: MI325X, MI300X"),
        ("H100-PCIe", "H100-PCIE", "nearest: H100-SXM, H100-NVL"),
        ("h10-sxm", None, "nearest: H100-SXM"),
        ("frontier", None, "known: cpu, A100-SXM"),
    ],
)
def test_hardware_is_found_by_names_that_people_use(
    name: str, hardware: str | None, line: str
) -> None:
    entry, words = find_hardware(name)
    assert (entry, line in words) == (hardware, True), words


@pytest.mark.parametrize(
    ("printed", "model"),
    [
        (SXM, "H100-SXM"),
        (PCIE, "H100-PCIE"),
        ("NVIDIA H200 NVL", "H200-NVL"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("AMD_Instinct_MI300X_OAM", "MI300X"),
        ("Tesla T4", "T4"),
        ("NVIDIA Graphics Device", None),
    ],
)
def test_printed_gpu_names_map_to_catalog_models(printed: str, model: str | None) -> None:
    assert gpu_model(printed) == model


def test_judge_needs_no_option_and_says_how_it_read_hardware(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.log").write_text(of_model(log_text(HEALTHY)))
    assert command("judge", str(tmp_path / "sweep.log")) == 0
    assert "as expected by catalog" in capsys.readouterr().out
    assert command("judge", str(tmp_path / "sweep.log"), "--hardware", "H100") == 0
    assert capsys.readouterr().err == "--hardware: H100 is taken as H100-SXM\n"
