"""Check this one machine: quick checks of every GPU that it sees, or of its processors where no GPU
is allowed.

    check.py [--allow-no-gpu] [--gpus N] [--results FILE] [--timeout-s T]
    check.py --fast slurm|kubernetes [--gpus N] [--ports N]      GPUs and ports alone, within 10 s

Starts the probes facts, devices, collective and training as processes, and on GPUs all_reduce_perf
of nccl-tests in place of collective. Prints `[ENV]`, `[COMPUTE]`, `[COLLECTIVE]` and `[TRAIN]`
lines as it goes, `[RESULT] VERDICT: REASON` at the end, and writes all figures to results.json.
Rates are printed, and not judged.

Exit statuses: 0 pass; 1 fail or corrupt; 2 bad arguments; 3 not measured. Under a launcher one
process of each machine checks it. SEATRIAL_ALLOW_NO_GPU=1 stands for --allow-no-gpu. Standard
library; what it starts needs torch.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import placement
from command_line import Option, parser_of
from probe_answers import (
    Json,
    figure,
    last_json,
    machine_lines,
    number,
    objects,
    read_json,
    text,
    training_line,
)
from processes import Ended, run, run_probe

# Exit statuses of a probe: rendezvous.py
_CANNOT_START = 3
_WRONG_RESULT = 7
_CPU_RANKS = 2
_MAX_DEVICES = 256
_CPU_SIZES = ("--min-bytes", str(1 << 20), "--max-bytes", str(16 << 20), "--iterations", "5")
_GPU_SIZES = ("-b", "8M", "-e", "1G", "-f", "2")
_ROUNDS = "10"
_LARGEST = {"cpu": 16 << 20, "gpu": 1 << 30}  # bytes
# Columns of a row of nccl-tests
_COLUMNS = 13
_WRONG_COLUMNS = (8, 12)
_BUSBW_COLUMN = 7
_SIZE = re.compile(r"[0-9]{1,15}")
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_OPTIONS: tuple[Option, ...] = (
    (
        "--allow-no-gpu",
        bool,
        False,
        "check the processors where torch sees no GPU, also when --gpus asks for some",
    ),
    ("--gpus", int, 0, "GPUs that the machine must have; as many as torch sees"),
    ("--fast", ("slurm", "kubernetes"), None, "look and measure nothing, for that scheduler"),
    ("--ports", int, 0, "RDMA ports that must be active, with --fast"),
    ("--results FILE", str, "results.json", "figures as JSON: results.json"),
    ("--timeout-s", float, 300.0, "for each program that is started: 300"),
)
VERDICTS = ("pass", "not_run", "inconclusive", "fail", "corrupt")  # the worst last


@dataclass(frozen=True)
class Part:
    """The result of one part of the check: lines for people, a verdict with its reason, and figures
    for results.json.

    `note` qualifies a pass: what was not checked.
    """

    name: str
    lines: tuple[str, ...] = ()
    verdict: str = "pass"
    reason: str = ""
    figures: Any = None
    note: str = ""


def collective(gpus: int, timeout_s: float) -> Part:
    """Run all_reduce over all GPUs by nccl-tests, else by torch, or between two processes by gloo.

    Every element is checked.
    """
    if gpus == 1:
        return Part("COLLECTIVE", ("one GPU: there is nothing to reduce with",))
    if not gpus:
        arguments = ("--operation", "all_reduce", *_CPU_SIZES)
        ended = run_probe("collective", arguments, timeout_s, ranks=_CPU_RANKS)
        over = f"{_CPU_RANKS} processes, gloo"
    elif shutil.which("all_reduce_perf"):
        command = ["all_reduce_perf", *_GPU_SIZES, "-g", str(gpus)]
        ended = run(command, timeout_s)
        over = f"{gpus} GPUs, NCCL"
    else:
        return sums(gpus, timeout_s)
    last = ["0"]
    for line in ended.output.splitlines():
        words = line.split()
        if not is_row(words):
            continue
        if any(words[side] != "0" for side in _WRONG_COLUMNS):
            return Part("COLLECTIVE", verdict="corrupt", reason="all_reduce: elements are wrong")
        last = words
    largest = _LARGEST["gpu" if gpus else "cpu"]
    mib = largest >> 20
    if ended.status != 0 or int(last[0]) != largest:
        return broken("COLLECTIVE", ended, f"no row of {mib} MiB")
    busbw = float(last[_BUSBW_COLUMN])
    line = f"all_reduce over {over}: {figure(busbw)} GB/s busbw at {mib} MiB, no wrong elements"
    figures = {"all_reduce_busbw_gb_s": busbw, "message_bytes": largest}
    return Part("COLLECTIVE", (line,), figures=figures)


def sums(gpus: int, timeout_s: float) -> Part:
    """Check sums over all GPUs by torch, without measuring a rate."""
    missing = "the rate of all_reduce was not measured: all_reduce_perf (nccl-tests) is not on PATH"
    arguments = ("--device", "cuda", "--rounds", _ROUNDS)
    ended = run_probe("all_reduce", arguments, timeout_s, gpus)
    ranks = objects(last_json(ended) or {}, "ranks")
    wrong = names_of(rank for rank in ranks if rank.get("wrong") != 0)
    if wrong:
        problem = f"all_reduce: elements are wrong on rank {', '.join(wrong)}"
        return Part("COLLECTIVE", verdict="corrupt", reason=problem)
    if ended.status != 0 or len(ranks) != gpus:
        problem = f"{len(ranks)} of {gpus} ranks told their sums"
        return broken("COLLECTIVE", ended, problem)
    line = (
        f"all_reduce over {gpus} GPUs, torch: {_ROUNDS} sums of 2,000,000 elements, no wrong "
        "elements"
    )
    figures = {"all_reduce_sums": int(_ROUNDS)}
    return Part("COLLECTIVE", (line,), figures=figures, note=missing)


def names_of(ranks: Iterable[Json]) -> list[str]:
    """Return the numbers of the ranks, as text."""
    return [text(rank.get("rank")) for rank in ranks]


def is_row(words: Sequence[str]) -> bool:
    """Return whether the words of a line are a row of nccl-tests."""
    if len(words) < _COLUMNS:
        return False
    has_size = _SIZE.fullmatch(words[0])
    has_busbw = _DECIMAL.fullmatch(words[_BUSBW_COLUMN])
    return bool(has_size and has_busbw)


def training(gpus: int, timeout_s: float) -> Part:
    """Train over all GPUs, or a tiny model over two processes; check that the loss falls and ranks
    agree.
    """
    device = "cpu"
    ranks = _CPU_RANKS
    unit = "processes"
    if gpus:
        device = "cuda"
        ranks = gpus
        unit = "GPUs"
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "results.json")
        arguments = ("--device", device, "--results", file)
        ended = run_probe("training", arguments, timeout_s, ranks)
        results = read_json(file)
    if ended.status == _WRONG_RESULT:
        reason = wrong_ranks(last_json(ended) or {})
        return Part("TRAIN", verdict="corrupt", reason=reason, figures=results)
    if ended.status != 0 or results is None:
        return broken("TRAIN", ended, "training wrote no results")
    line = training_line(results, f"{ranks} {unit}")
    if results.get("improved") is not True:
        return Part("TRAIN", (line,), "fail", "the loss did not fall", results)
    return Part("TRAIN", (line,), figures=results)


def wrong_ranks(summary: Json) -> str:
    """Name the ranks whose loss is not finite, or whose parameters differ from the majority's."""
    ranks = objects(summary, "ranks")
    not_finite = names_of(rank for rank in ranks if rank.get("finite") is not True)
    if not_finite:
        return f"the loss or a parameter is not finite on rank {', '.join(not_finite)}"
    checksums = [text(rank.get("checksum")) for rank in ranks]
    others = outliers(checksums)
    if not others:
        return "training ends with other parameters on different ranks"
    named = ", ".join(names_of(ranks[index] for index in others))
    return f"training ends with other parameters on rank {named} than on the others"


def outliers(values: Sequence[str]) -> list[int] | None:
    """Return the indices of values that differ from the majority's; None without a majority."""
    for value, count in Counter(values).most_common(1):
        if 2 * count > len(values):
            return [index for index, each in enumerate(values) if each != value]
    return None


def broken(name: str, ended: Ended, problem: str) -> Part:
    """Return a part without figures: inconclusive if it could not start or was too slow, else
    failed.
    """
    verdict = "fail"
    if ended.status in (0, None, _CANNOT_START):
        verdict = "inconclusive"
    return Part(name, verdict=verdict, reason=ended.problem or problem)


def worst(verdicts: Iterable[str]) -> str:
    """Return the worst verdict; pass without any."""
    return max(verdicts, key=VERDICTS.index, default="pass")


def compute(gpus: int, timeout_s: float) -> Part:
    """Check matrix multiplication and memory copy on every device: right results, equal on like
    devices.
    """
    ended = run_probe("devices", ("--gpus", str(gpus)), timeout_s)
    answer = last_json(ended)
    if answer is None:
        return broken("COMPUTE", ended, "devices printed no JSON")
    if "error" in answer:
        return broken("COMPUTE", ended, text(answer["error"]))
    devices = objects(answer, "devices")[:_MAX_DEVICES]
    if not devices:
        return broken("COMPUTE", ended, "no device was measured")
    figures = [device_figures(device) for device in devices]
    problems = list(own_problems(figures))
    problems += different_devices(devices, figures)
    return Part(
        "COMPUTE",
        lines=tuple(map(device_line, figures)),
        verdict=worst(verdict for verdict, _ in problems),
        reason="; ".join(reason for _, reason in problems),
        figures=figures,
        note="rates are not judged",
    )


def device_figures(device: Json) -> Json:
    """Return the text fields of a device, and the median of each of its lists of samples."""
    names = ("device", "model", "dtype", "wrong", "error")
    figures: Json = {name: text(device.get(name)) for name in names}
    for name, samples in device.items():
        if not isinstance(samples, list):
            continue
        values = []
        for value in map(number, samples):
            if value and value > 0:
                values.append(value)
        if values:
            figures[text(name)] = statistics.median(values)
    return figures


def device_line(figures: Json) -> str:
    """Return the line of a device with its rates."""
    matmul = figure(figures.get("matmul_tflops", math.nan))
    copy = figure(figures.get("copy_gb_s", math.nan))
    rates = f"matmul {figures['dtype']} {matmul} TFLOP/s, memory copy {copy} GB/s"
    device = f"{figures['device']} {figures['model']}"
    return f"{device}: {rates}"


def own_problems(devices: Sequence[Json]) -> Iterator[tuple[str, str]]:
    """Yield (verdict, reason) of each device that reports an error or wrong results."""
    for device in devices:
        name = device["device"]
        error = device["error"]
        if device["wrong"]:
            yield "corrupt", f"{name}: {device['wrong']}"
        elif error:
            yield "fail", f"{name}: {error}"
        elif not {"matmul_tflops", "copy_gb_s"} <= device.keys():
            yield "fail", f"{name}: no samples"


def different_devices(
    devices: Sequence[Json], figures: Sequence[Json]
) -> Iterator[tuple[str, str]]:
    """Yield (verdict, reason) of devices whose digests differ from those of like devices."""
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for device, named in zip(devices, figures):
        digests = device.get("digests")
        if not isinstance(digests, dict):
            continue
        kind = [device.get(name) for name in ("model", "library", "software")]
        alike = json.dumps(kind)
        digest = json.dumps(digests, sort_keys=True)
        groups[alike].append((named["device"], digest))
    for group in groups.values():
        names = [name for name, _ in group]
        others = outliers([digest for _, digest in group])
        if others is None:
            devices_alike = ", ".join(names)
            yield "corrupt", f"{devices_alike}: alike, and their results differ"
            continue
        for index in others:
            name = names[index]
            yield "corrupt", f"{name}: its results differ from those of the devices alike"


def main(arguments: Sequence[str]) -> int:
    """Check this machine; return the exit status."""
    options = parse(arguments)
    if options.fast:
        import health  # imported only here, as nothing else reads the hardware

        status: int = health.main(options.fast, options.gpus, options.ports)
        return status
    if local_rank(os.environ):
        return 0
    # Exit in order, so that started programs are ended too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parts = []
    problems = []
    notes = []
    for part in checked(options):
        show(part)
        parts.append(part)
        if part.verdict != "pass":
            problems.append(f"{part.name}: {part.reason}")
        if part.note:
            notes.append(part.note)
    verdict = worst(part.verdict for part in parts)
    reasons = problems or ["all results are right", *notes]
    reason = "; ".join(reasons)
    print(f"[RESULT] {verdict}: {reason}", flush=True)
    write_results(options.results, verdict, reason, parts)
    return {"pass": 0, "not_run": 3, "inconclusive": 3}.get(verdict, 1)


def show(part: Part) -> None:
    """Print the lines of a part, and its reason if it did not pass."""
    label = f"[{part.name}]"
    for line in part.lines:
        print(f"{label} {line}", flush=True)
    if part.reason:
        print(f"{label} {part.verdict}: {part.reason}", flush=True)


def checked(options: Namespace) -> Iterator[Part]:
    """Yield the parts of the check as they finish; a failed part does not stop the others."""
    yield environment(min(options.timeout_s, 60.0))
    devices = compute(options.gpus, options.timeout_s)
    yield devices
    gpus = 0
    for device in devices.figures or ():
        if device["device"].startswith("cuda"):
            gpus += 1
    seen = f"torch sees {gpus} of {options.gpus} GPUs"
    if not gpus and not options.allow_no_gpu:
        no_gpu = "torch sees no GPU; --allow-no-gpu checks the processors alone"
        yield Part("GPU", verdict="not_run", reason=seen if options.gpus else no_gpu)
        return
    if 0 < gpus < options.gpus:
        yield Part("GPU", verdict="fail", reason=seen)
    yield collective(gpus, options.timeout_s)
    yield training(gpus, options.timeout_s)


def environment(timeout_s: float) -> Part:
    """Describe the machine; a failed inventory does not affect the verdict, as no figure depends on
    it.
    """
    ended = run_probe("facts", (), timeout_s)
    facts = last_json(ended)
    if facts is None:
        problem = ended.problem or "facts printed no JSON"
        return Part("ENV", (f"no inventory: {problem}",))
    return Part("ENV", tuple(machine_lines(facts)), figures=facts)


def write_results(file: str, verdict: str, reason: str, parts: Sequence[Part]) -> None:
    """Write the figures of every part, by its name; a file that cannot be written changes no
    verdict.
    """
    document = {"verdict": verdict, "reason": reason}
    for part in parts:
        if part.figures is not None:
            document[part.name.lower()] = part.figures
    try:
        with open(file, "w") as stream:
            stream.write(json.dumps(document, indent=2) + "\n")
    except OSError as error:
        sys.stderr.write(f"check: {file} cannot be written: {error.strerror}\n")


def local_rank(environ: Mapping[str, str]) -> int:
    """Return the rank of this process on its machine, as set by the launcher; 0 without one."""
    for launcher in placement.LAUNCHERS:
        if launcher.started(environ):
            rank = environ.get(launcher.local_rank, "")
            if rank.isdecimal():
                return int(rank)
    return 0


def parse(arguments: Sequence[str]) -> Namespace:
    """Return the options; exit with 2 for bad ones."""
    parser = parser_of("check.py", __doc__, _OPTIONS)
    options: Namespace = parser.parse_args(arguments)
    options.allow_no_gpu |= os.environ.get("SEATRIAL_ALLOW_NO_GPU") == "1"
    if options.gpus < 0 or options.ports < 0 or not 0 < options.timeout_s < 86_400:
        parser.error(
            "needs --gpus and --ports of 0 or more, and --timeout-s above 0 and below 86400"
        )
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
