"""The decoder of the probe `training` on one GPU, beside a plain PyTorch loop of the same shape.

    python3 benchmarks/llama_gpu.py [--out FOLDER] [--only speed,checkpoint,same]

Needs torch and a GPU, and nothing of seatrial's own packages. Each training is a process of its
own; the plain loop and the probe take turns on the same machine. What is printed, one JSON object a
line, is also written to FOLDER/llama.jsonl.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROBES = Path(__file__).parents[1] / "seatrial" / "remote" / "probes"
SIZE, SEQUENCE, BATCH = "1b", 4096, 2
STEPS, WARMUP = 40, 10
PEAK_TFLOPS = 989.5  # bf16 without sparsity: NVIDIA's data sheet of H100 SXM, and of H200


def main() -> None:
    options = parse()
    if options.plain:
        print(json.dumps(plain(compiled=options.plain == "compiled")), flush=True)
        return
    report = Report(options.out)
    for name in options.only.split(","):
        PARTS[name](report)


class Report:
    """Prints results as they come, and keeps them in a file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = (folder / "llama.jsonl").open("a")

    def add(self, measurement: str, **values: Any) -> None:
        line = json.dumps({"what": measurement, **values})
        print(line, flush=True)
        self.file.write(line + "\n")
        self.file.flush()


def plain(*, compiled: bool) -> dict[str, Any]:
    """The loop that a person writes: autocast, AdamW, no FSDP, no events; wall-clock time after the
    warm-up.
    """
    sys.path.insert(0, str(PROBES))
    import torch
    from decoder import SIZES, Decoder, initialize  # type: ignore[import-not-found]
    from torch.nn.functional import cross_entropy

    size = SIZES[SIZE]
    with torch.device("meta"):
        model = Decoder(size, SEQUENCE)
    model.to_empty(device="cuda")
    initialize(model, "", 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)

    def loss_of(tokens: torch.Tensor) -> torch.Tensor:
        logits = model(tokens[:, :-1])
        return cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    run = torch.compile(loss_of) if compiled else loss_of
    generator = torch.Generator("cuda").manual_seed(1)
    began = 0.0
    for step in range(STEPS):
        if step == WARMUP:
            torch.cuda.synchronize()
            began = time.perf_counter()
        tokens = torch.randint(
            size.vocabulary, (BATCH, SEQUENCE + 1), generator=generator, device="cuda"
        )
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    rate = (STEPS - WARMUP) * BATCH * SEQUENCE / seconds
    return {
        "tokens_s": rate,
        "memory_gb": torch.cuda.max_memory_allocated() / 1e9,
        "loss": float(loss.detach()),
    }


def probe(*arguments: str, **more: Any) -> dict[str, Any]:
    """Run the probe; its last event, or what it said when it failed."""
    words = ["--model", "llama", *arguments]
    for name, value in more.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, PROBES / "training.py", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"event"')]
    last = events[-1] if events else {}
    if last.get("event") != "llama":
        return {"failed": done.returncode, "said": (done.stdout + done.stderr)[-1500:]}
    return {
        **last,
        "status": done.returncode,
        "seconds": time.perf_counter() - began,
        "events": events,
    }


def speed(report: Report) -> None:
    """Tokens per second of the probe as a fraction of the plain loop's, eager and compiled."""
    for kind in ("eager", "compiled"):
        done = subprocess.run(
            [sys.executable, __file__, "--plain", kind], capture_output=True, text=True, check=False
        )
        if done.returncode:
            report.add("plain", kind=kind, failed=done.stderr[-1500:])
            continue
        loop = json.loads(done.stdout.splitlines()[-1])
        report.add("plain", kind=kind, **loop)
        options = ["--compile"] if kind == "compiled" else []
        shape = {"size": SIZE, "sequence": SEQUENCE, "batch": BATCH}
        mine = probe(
            *options, **shape, steps=STEPS, warmup=WARMUP, precision="bf16", peak_tflops=PEAK_TFLOPS
        )
        mine.pop("events", None)
        share = mine["tokens_s_per_gpu"] / loop["tokens_s"] if "tokens_s_per_gpu" in mine else None
        report.add("probe", kind=kind, share_of_plain=share, **mine)


def checkpoint(report: Report) -> None:
    """A checkpoint saved, read back, and resumed from, in sync and async."""
    for kind in ("sync", "async"):
        with tempfile.TemporaryDirectory() as folder:
            options = ["--checkpoint-async"] if kind == "async" else []
            same = {
                "size": "150m",
                "sequence": 2048,
                "batch": 4,
                "precision": "bf16",
                "checkpoint_dir": folder,
            }
            first = probe(*options, **same, checkpoint_every=10, steps=20)
            second = probe(*options, **same, checkpoint_every=10, steps=30)
            whole = probe(**{**same, "checkpoint_dir": tempfile.mkdtemp()}, steps=30)
            figures = [each.get("checkpoint") or each for each in (first, second)]
            digests = [
                each["ranks"][0]["parameters"] if "ranks" in each else None
                for each in (second, whole)
            ]
            report.add(
                "checkpoint",
                kind=kind,
                figures=figures,
                resumed_is_bit_equal=digests[0] == digests[1],
            )


def same(report: Report) -> None:
    """Two runs, bit for bit; then one whose replays have a flipped bit, which must be named."""
    options = {
        "size": "150m",
        "sequence": 2048,
        "batch": 4,
        "steps": 20,
        "precision": "bf16",
        "replays": 10,
    }
    runs = [probe("--deterministic", **options) for _ in range(2)]
    digests = [each.get("losses_digest") or each for each in runs]
    parameters = [each["ranks"][0]["parameters"] if "ranks" in each else None for each in runs]
    replayed = [each.get("replays") for each in runs]
    report.add("two runs", losses=digests, parameters=parameters, replays=replayed)
    flipped = probe(**options, wrong="0:compute-once")
    report.add(
        "flipped bit",
        replays=flipped.get("replays"),
        status=flipped.get("status"),
        failed=flipped.get("said"),
    )


PARTS = {"speed": speed, "checkpoint": checkpoint, "same": same}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("."), help="the folder of llama.jsonl")
    parser.add_argument(
        "--only", default="speed,checkpoint,same", help=f"parts, of {', '.join(PARTS)}"
    )
    parser.add_argument("--plain", choices=("eager", "compiled"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
