"""How fast logs are redacted, in MB/s of CPU time: `python benchmarks/redaction.py LOG... [--secrets N]`.

Measured over the real nccl-tests logs of tests/golden (3.4 MB of lines, Python 3.11, CPU time of one core):

    secrets   one replacement per value and pattern   one trie, patterns where a line has their mark
    0         1.6 MB/s                                20 MB/s
    5         1.2 MB/s                                14 MB/s
    50        0.9 MB/s                                7.6 MB/s
    200       0.7 MB/s                                4.8 MB/s
"""

import argparse
import random
import string
import time
from pathlib import Path

from seatrial.text.redact import Redactor, Secrets

_PIECE = 64 * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--secrets", type=int, nargs="*", default=[0, 5, 50, 200])
    asked = parser.parse_args()
    text = "".join(path.read_text(errors="replace") for path in asked.logs)
    text *= max(1, 3_400_000 // len(text))
    for count in asked.secrets:
        print(f"{count:4} secrets: {megabytes_per_second(text, count):6.1f} MB/s")


def megabytes_per_second(text: str, count: int) -> float:
    """Characters of `text` per second of CPU time, in millions, with `count` known secrets of 40 characters."""
    source = random.Random(1)
    letters = string.ascii_letters + string.digits
    redactor = Redactor(Secrets(tuple("".join(source.choices(letters, k=40)) for _ in range(count))))
    started = time.process_time()
    for at in range(0, len(text), _PIECE):
        redactor.feed(text[at : at + _PIECE])
    redactor.end()
    return len(text) / (time.process_time() - started) / 1e6


if __name__ == "__main__":
    main()
