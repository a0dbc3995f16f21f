"""Check this one machine: quick checks of every GPU that it sees, or of its processors where no GPU is allowed.

    check.py [--allow-no-gpu] [--gpus N] [--results FILE] [--timeout-s T]

Starts the probes facts, devices, collective and training as processes, and on GPUs all_reduce_perf of nccl-tests in
place of collective. Prints `[ENV]`, `[COMPUTE]`, `[COLLECTIVE]` and `[TRAIN]` lines as it goes, `[RESULT] VERDICT:
REASON` at the end, and writes all figures to results.json. Rates are printed, and not judged.

Exit statuses: 0 pass; 1 fail or corrupt; 2 bad arguments; 3 not measured. Under a launcher one process of
each machine checks it. SEATRIAL_ALLOW_NO_GPU=1 stands for --allow-no-gpu. Standard library; what it starts needs torch.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence

import placement
from processes import run_probe
from quick_checks import Part, collective, compute, last_json, number, text, training, worst

_EXIT_STATUS = {"pass": 0, "not_run": 3, "inconclusive": 3}
_INVENTORY_S = 60.0


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if local_rank(os.environ):
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started ends as well
    parts = []
    for part in checked(options):
        for line in part.lines:
            print(f"[{part.name}] {line}", flush=True)
        if part.reason:
            print(f"[{part.name}] {part.verdict}: {part.reason}", flush=True)
        parts.append(part)
    verdict, reason = conclusion(parts)
    print(f"[RESULT] {verdict}: {reason}", flush=True)
    write_results(options.results, verdict, reason, parts)
    return _EXIT_STATUS.get(verdict, 1)


def checked(options: argparse.Namespace) -> Iterator[Part]:
    """The parts of the check, each when it is done. One that fails does not keep the others from being tried."""
    yield environment(min(options.timeout_s, _INVENTORY_S))
    devices = compute(options.gpus, options.timeout_s)
    yield devices
    gpus = sum(str(device["device"]).startswith("cuda") for device in devices.figures or ())
    if gpus < options.gpus and not (options.allow_no_gpu and not gpus):
        yield Part("GPU", (), "fail" if gpus else "not_run", f"torch sees {gpus} of {options.gpus} GPUs")
    elif not gpus and not options.allow_no_gpu:
        yield Part("GPU", (), "not_run", "torch sees no GPU; --allow-no-gpu checks the processors alone")
    if gpus or options.allow_no_gpu:
        yield collective(gpus, options.timeout_s)
        yield training(gpus, options.timeout_s)


def environment(timeout_s: float) -> Part:
    """What the machine is. An inventory that cannot be had is shown and fails nothing: no figure depends on it."""
    ended = run_probe("facts", (), timeout_s)
    facts = last_json(ended)
    if facts is None:
        return Part("ENV", (f"no inventory: {ended.problem or 'facts printed no JSON'}",))
    counts = [(number(facts.get(name)) or 0, unit) for name, unit in (("cpus", "CPUs"), ("gpus", "GPUs"))]
    sizes = [f"{count:.0f} {unit}" for count, unit in (*counts, (number(facts.get("memory_gb")) or 0, "GB of memory"))]
    machine = [*sizes, text(facts.get("cpu_model")), text(facts.get("gpu_model"))]
    versions = facts.get("versions")
    named = versions.items() if isinstance(versions, dict) else ()
    software = [f"{text(name)} {text(version)}" for name, version in named if version]
    lines = (f"{text(facts.get('hostname'))}: {', '.join(filter(None, machine))}", ", ".join(software))
    return Part("ENV", tuple(filter(None, lines)), figures=facts)


def conclusion(parts: Sequence[Part]) -> tuple[str, str]:
    """(verdict, reason) of the machine."""
    verdict = worst(part.verdict for part in parts)
    problems = [f"{part.name}: {part.reason}" for part in parts if part.verdict != "pass"]
    notes = [part.note for part in parts if part.note]
    return verdict, "; ".join(problems or ["all results are right", *notes])


def write_results(file: str, verdict: str, reason: str, parts: Sequence[Part]) -> None:
    """The figures of every part, by its name; a file that cannot be written changes no verdict."""
    figures = {part.name.lower(): part.figures for part in parts if part.figures is not None}
    document = {"verdict": verdict, "reason": reason, **figures}
    try:
        with open(file, "w") as stream:
            stream.write(json.dumps(document, indent=2) + "\n")
    except OSError as error:
        sys.stderr.write(f"check: {file} cannot be written: {error.strerror}\n")


def local_rank(environ: Mapping[str, str]) -> int:
    """The number of this process on its machine, by the launcher; 0 without one."""
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
    parser.add_argument("--gpus", type=int, default=0, help="GPUs that the machine must have; as many as torch sees")
    parser.add_argument("--results", metavar="FILE", default="results.json", help="figures as JSON: results.json")
    parser.add_argument("--timeout-s", type=float, default=300.0, help="for each program that is started: 300")
    options = parser.parse_args(arguments)
    if options.gpus < 0 or not 0 < options.timeout_s < 86_400:
        parser.error("needs --gpus of 0 or more, and --timeout-s above 0 and below 86400")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
