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

import argparse
import json
import math
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Dict

import placement
from processes import Ended, run, run_probe

Json = Dict[str, Any]  # an object
_CANNOT_START, _WRONG_RESULT = 3, 7  # of a probe: rendezvous.py
_MAX_TEXT = 200  # characters of a probe's text
_MAX_JSON = 1 << 20  # bytes
_CPU_RANKS = 2
_MAX_DEVICES = 256
_CPU_SIZES = ("--min-bytes", str(1 << 20), "--max-bytes", str(16 << 20), "--iterations", "5")
_GPU_SIZES = ("-b", "8M", "-e", "1G", "-f", "2")
_ROUNDS = "10"
_LARGEST = {"cpu": 16 << 20, "gpu": 1 << 30}  # bytes
_COLUMNS, _WRONG_COLUMNS = 13, (8, 12)  # of a row of nccl-tests
_BUSBW_COLUMN = 7
_SIZE, _DECIMAL = re.compile(r"[0-9]{1,15}"), re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
VERDICTS = ("pass", "not_run", "inconclusive", "fail", "corrupt")  # the worst last


@dataclass(frozen=True)
class Part:
    """The result of one part of the check: lines for people, a verdict with its reason, and figures
    for results.json.

    `note` belongs beside a pass: what it does not rest on.
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
    if gpus:
        if not shutil.which("all_reduce_perf"):
            return sums(gpus, timeout_s)
        ended = run(["all_reduce_perf", *_GPU_SIZES, "-g", str(gpus)], timeout_s)
    else:
        ended = run_probe(
            "collective", ("--operation", "all_reduce", *_CPU_SIZES), timeout_s, ranks=_CPU_RANKS
        )
    rows = [words for words in map(str.split, ended.output.splitlines()) if is_row(words)]
    if any(words[side] != "0" for words in rows for side in _WRONG_COLUMNS):
        return Part("COLLECTIVE", (), "corrupt", "all_reduce: elements are wrong")
    largest = _LARGEST["gpu" if gpus else "cpu"]
    if ended.status != 0 or not rows or int(rows[-1][0]) != largest:
        return broken("COLLECTIVE", ended, f"no row of {largest >> 20} MiB")
    busbw = float(rows[-1][_BUSBW_COLUMN])
    over = f"{gpus} GPUs, NCCL" if gpus else f"{_CPU_RANKS} processes, gloo"
    line = (
        f"all_reduce over {over}: {figure(busbw)} GB/s busbw at {largest >> 20} MiB, no wrong "
        "elements"
    )
    return Part(
        "COLLECTIVE", (line,), figures={"all_reduce_busbw_gb_s": busbw, "message_bytes": largest}
    )


def sums(gpus: int, timeout_s: float) -> Part:
    """Check sums over all GPUs by torch; this gives no rate."""
    missing = "the rate of all_reduce was not measured: all_reduce_perf (nccl-tests) is not on PATH"
    ended = run_probe("all_reduce", ("--device", "cuda", "--rounds", _ROUNDS), timeout_s, gpus)
    ranks = objects(last_json(ended) or {}, "ranks")
    wrong = [text(rank.get("rank")) for rank in ranks if rank.get("wrong") != 0]
    if wrong:
        return Part(
            "COLLECTIVE",
            (),
            "corrupt",
            f"all_reduce: elements are wrong on rank {', '.join(wrong)}",
        )
    if ended.status != 0 or len(ranks) != gpus:
        return broken("COLLECTIVE", ended, f"{len(ranks)} of {gpus} ranks told their sums")
    line = (
        f"all_reduce over {gpus} GPUs, torch: {_ROUNDS} sums of 2,000,000 elements, no wrong "
        "elements"
    )
    return Part("COLLECTIVE", (line,), figures={"all_reduce_sums": int(_ROUNDS)}, note=missing)


def is_row(words: Sequence[str]) -> bool:
    return len(words) >= _COLUMNS and bool(
        _SIZE.fullmatch(words[0]) and _DECIMAL.fullmatch(words[_BUSBW_COLUMN])
    )


def training(gpus: int, timeout_s: float) -> Part:
    """Train over all GPUs, or a tiny model over two processes; the loss falls and the ranks end
    alike.
    """
    device, ranks = ("cuda", gpus) if gpus else ("cpu", _CPU_RANKS)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "results.json")
        ended = run_probe("training", ("--device", device, "--results", file), timeout_s, ranks)
        results = read_json(file)
    if ended.status == _WRONG_RESULT:
        return Part("TRAIN", (), "corrupt", wrong_ranks(last_json(ended) or {}), results)
    if ended.status != 0 or results is None:
        return broken("TRAIN", ended, "training wrote no results")
    names = ("throughput_samples_per_second", "median_step_time_seconds", "loss_start", "loss_end")
    rate, step_s, first, last = (number(results.get(name)) or math.nan for name in names)
    of = (
        f"{text(results.get('model'))} {text(results.get('precision'))} on {ranks} "
        f"{'GPUs' if gpus else 'processes'}"
    )
    line = (
        f"{of}: {figure(rate)} samples/s, {figure(1e3 * step_s)} ms a step, loss {first:.3f} "
        f"to {last:.3f}"
    )
    if results.get("improved") is not True:
        return Part("TRAIN", (line,), "fail", "the loss did not fall", results)
    return Part("TRAIN", (line,), figures=results)


def wrong_ranks(summary: Json) -> str:
    """Name the ranks whose loss is not finite, or whose parameters differ from those of most."""
    ranks = objects(summary, "ranks")
    not_finite = [text(rank.get("rank")) for rank in ranks if rank.get("finite") is not True]
    if not_finite:
        return f"the loss or a parameter is not finite on rank {', '.join(not_finite)}"
    others = outliers([text(rank.get("checksum")) for rank in ranks])
    if not others:
        return "training ends with other parameters on different ranks"
    named = ", ".join(text(ranks[index].get("rank")) for index in others)
    return f"training ends with other parameters on rank {named} than on the others"


def outliers(values: Sequence[str]) -> list[int] | None:
    """Return the indices of values that differ from the majority's; None without a majority."""
    value, count = Counter(values).most_common(1)[0] if values else ("", 0)
    return (
        [index for index, each in enumerate(values) if each != value]
        if 2 * count > len(values)
        else None
    )


def broken(name: str, ended: Ended, problem: str) -> Part:
    """Return a part without figures: not measured if it could not start or took too long, else
    failed.
    """
    measured = ended.status not in (0, None, _CANNOT_START)
    return Part(name, (), "fail" if measured else "inconclusive", ended.problem or problem)


def worst(verdicts: Iterable[str]) -> str:
    return max(verdicts, key=VERDICTS.index, default="pass")


def last_json(ended: Ended) -> Json | None:
    """Return the JSON object in the last line that a program printed, if any."""
    lines = ended.output.strip().splitlines()
    return _json_object(lines[-1]) if lines else None


def read_json(file: str) -> Json | None:
    """Return the JSON object in a file; None if it has none or is too large."""
    try:
        with open(file, errors="replace") as stream:
            content = stream.read(_MAX_JSON + 1)
    except OSError:
        return None
    return _json_object(content) if len(content) <= _MAX_JSON else None


def _json_object(content: str) -> Json | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def objects(answer: Json, name: str) -> list[Json]:
    """Return the JSON objects in a list of the answer; none where it is no list."""
    entries = answer.get(name)
    return (
        [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )


def number(value: object) -> float | None:
    """Return a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < math.inf else None


def figure(value: float) -> str:
    """Format with three significant digits, never cutting whole numbers, as in reports: 4.50, 386,
    2,700.
    """
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def text(value: object) -> str:
    """Return one line to print, bounded and without control characters; "" for None."""
    words = " ".join(str("" if value is None else value).split())
    return "".join(letter for letter in words if letter.isprintable())[:_MAX_TEXT]


def compute(gpus: int, timeout_s: float) -> Part:
    """Check matrix multiplication and memory copy on every device: results are right, and equal on
    like devices.
    """
    ended = run_probe("devices", ("--gpus", str(gpus)), timeout_s)
    answer = last_json(ended)
    if answer is None or "error" in answer:
        return broken(
            "COMPUTE", ended, "devices printed no JSON" if answer is None else text(answer["error"])
        )
    devices = objects(answer, "devices")[:_MAX_DEVICES]
    if not devices:
        return broken("COMPUTE", ended, "no device was measured")
    figures = [device_figures(device) for device in devices]
    problems = [*own_problems(figures), *different_devices(devices, figures)]
    verdict = worst(verdict for verdict, _ in problems)
    lines = tuple(device_line(device) for device in figures)
    return Part(
        "COMPUTE",
        lines,
        verdict,
        "; ".join(reason for _, reason in problems),
        figures,
        "rates are not judged",
    )


def device_figures(device: Json) -> Json:
    """Return the names and texts of a device, and the median of each of its lists of samples."""
    figures: Json = {
        name: text(device.get(name, "")) for name in ("device", "model", "dtype", "wrong", "error")
    }
    for name, samples in device.items():
        values = (
            [value for value in map(number, samples) if value and value > 0]
            if isinstance(samples, list)
            else []
        )
        if values:
            figures[text(name)] = statistics.median(values)
    return figures


def device_line(figures: Json) -> str:
    matmul, copy = (figures.get(name, math.nan) for name in ("matmul_tflops", "copy_gb_s"))
    rates = f"matmul {figures['dtype']} {figure(matmul)} TFLOP/s, memory copy {figure(copy)} GB/s"
    return f"{figures['device']} {figures['model']}: {rates}"


def own_problems(devices: Sequence[Json]) -> Iterator[tuple[str, str]]:
    for device in devices:
        if device["wrong"]:
            yield "corrupt", f"{device['device']}: {device['wrong']}"
        elif device["error"] or not {"matmul_tflops", "copy_gb_s"} <= device.keys():
            yield "fail", f"{device['device']}: {device['error'] or 'no samples'}"


def different_devices(
    devices: Sequence[Json], figures: Sequence[Json]
) -> Iterator[tuple[str, str]]:
    """Yield the devices whose digests of the same work differ from those of the others that are
    alike.
    """
    digests: dict[str, list[tuple[str, str]]] = {}
    for device, named in zip(devices, figures, strict=True):
        if isinstance(device.get("digests"), dict):
            alike = json.dumps([device.get(name) for name in ("model", "library", "software")])
            digest = json.dumps(device["digests"], sort_keys=True)
            digests.setdefault(alike, []).append((named["device"], digest))
    for group in digests.values():
        others = outliers([digest for _, digest in group])
        if others is None:
            yield (
                "corrupt",
                f"{', '.join(device for device, _ in group)}: alike, and their results differ",
            )
        for index in others or ():
            yield (
                "corrupt",
                f"{group[index][0]}: its results differ from those of the devices alike",
            )


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.fast:
        import health  # reads this machine's hardware, which nothing else here does

        status: int = health.main(options.fast, options.gpus, options.ports)
        return status
    if local_rank(os.environ):
        return 0
    # What was started ends as well
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parts = []
    for part in checked(options):
        for line in part.lines:
            print(f"[{part.name}] {line}", flush=True)
        if part.reason:
            print(f"[{part.name}] {part.verdict}: {part.reason}", flush=True)
        parts.append(part)
    verdict = worst(part.verdict for part in parts)
    problems = [f"{part.name}: {part.reason}" for part in parts if part.verdict != "pass"]
    notes = [part.note for part in parts if part.note]
    reason = "; ".join(problems or ["all results are right", *notes])
    print(f"[RESULT] {verdict}: {reason}", flush=True)
    write_results(options.results, verdict, reason, parts)
    return {"pass": 0, "not_run": 3, "inconclusive": 3}.get(verdict, 1)


def checked(options: argparse.Namespace) -> Iterator[Part]:
    """Yield the parts of the check, each when it is done.

    One that fails does not keep the others from being tried.
    """
    yield environment(min(options.timeout_s, 60.0))
    devices = compute(options.gpus, options.timeout_s)
    yield devices
    gpus = sum(str(device["device"]).startswith("cuda") for device in devices.figures or ())
    if gpus < options.gpus and not (options.allow_no_gpu and not gpus):
        yield Part(
            "GPU", (), "fail" if gpus else "not_run", f"torch sees {gpus} of {options.gpus} GPUs"
        )
    elif not gpus and not options.allow_no_gpu:
        yield Part(
            "GPU", (), "not_run", "torch sees no GPU; --allow-no-gpu checks the processors alone"
        )
    if gpus or options.allow_no_gpu:
        yield collective(gpus, options.timeout_s)
        yield training(gpus, options.timeout_s)


def environment(timeout_s: float) -> Part:
    """Describe the machine. A failed inventory fails nothing, as no figure depends on it."""
    ended = run_probe("facts", (), timeout_s)
    facts = last_json(ended)
    if facts is None:
        return Part("ENV", (f"no inventory: {ended.problem or 'facts printed no JSON'}",))
    counts = [
        (number(facts.get(name)) or 0, unit) for name, unit in (("cpus", "CPUs"), ("gpus", "GPUs"))
    ]
    sizes = [
        f"{count:.0f} {unit}"
        for count, unit in (*counts, (number(facts.get("memory_gb")) or 0, "GB of memory"))
    ]
    machine = [*sizes, text(facts.get("cpu_model")), text(facts.get("gpu_model"))]
    versions = facts.get("versions")
    named = versions.items() if isinstance(versions, dict) else ()
    software = [f"{text(name)} {text(version)}" for name, version in named if version]
    lines = (
        f"{text(facts.get('hostname'))}: {', '.join(filter(None, machine))}",
        ", ".join(software),
    )
    return Part("ENV", tuple(filter(None, lines)), figures=facts)


def write_results(file: str, verdict: str, reason: str, parts: Sequence[Part]) -> None:
    """Write the figures of every part, by its name; a file that cannot be written changes no
    verdict.
    """
    figures = {part.name.lower(): part.figures for part in parts if part.figures is not None}
    document = {"verdict": verdict, "reason": reason, **figures}
    try:
        with open(file, "w") as stream:
            stream.write(json.dumps(document, indent=2) + "\n")
    except OSError as error:
        sys.stderr.write(f"check: {file} cannot be written: {error.strerror}\n")


def local_rank(environ: Mapping[str, str]) -> int:
    """Return the number of this process on its machine, by the launcher; 0 without one."""
    names = (launcher.local_rank for launcher in placement.LAUNCHERS if launcher.started(environ))
    numbers = [environ[name] for name in names if environ.get(name, "").isdecimal()]
    return int(numbers[0]) if numbers else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="check.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--allow-no-gpu",
        action="store_true",
        default=os.environ.get("SEATRIAL_ALLOW_NO_GPU") == "1",
        help="check the processors where torch sees no GPU, also when --gpus asks for some",
    )
    parser.add_argument(
        "--gpus", type=int, default=0, help="GPUs that the machine must have; as many as torch sees"
    )
    parser.add_argument(
        "--fast",
        choices=("slurm", "kubernetes"),
        help="look and measure nothing, for that scheduler",
    )
    parser.add_argument(
        "--ports", type=int, default=0, help="RDMA ports that must be active, with --fast"
    )
    parser.add_argument(
        "--results", metavar="FILE", default="results.json", help="figures as JSON: results.json"
    )
    parser.add_argument(
        "--timeout-s", type=float, default=300.0, help="for each program that is started: 300"
    )
    options = parser.parse_args(arguments)
    if options.gpus < 0 or options.ports < 0 or not 0 < options.timeout_s < 86_400:
        parser.error(
            "needs --gpus and --ports of 0 or more, and --timeout-s above 0 and below 86400"
        )
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
