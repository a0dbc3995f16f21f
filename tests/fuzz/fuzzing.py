"""Try inputs on a target: what it may not do is raise an error that nobody wrote for people, or take seconds."""

import time
import traceback
from pathlib import Path

from tests.fuzz.targets import Target, inputs

MOST_S = 5.0


def problems(target: Target, count: int, folder: Path, seed: int = 0) -> list[str]:
    """One text per input that broke the target, with the number that makes it anew; the input lies in `folder`."""
    broken = []
    for number, data in inputs(target, count, seed):
        path = folder / f"{number}" / "run.json"
        path.parent.mkdir()
        path.write_bytes(data)
        started = time.process_time()
        problem = _tried(target, path)
        seconds = time.process_time() - started
        if seconds > MOST_S:
            problem = f"took {seconds:.1f} s"
        if problem:
            broken.append(f"{target.name} {number}: {path}: {problem}")
        else:
            for file in path.parent.iterdir():
                file.unlink()
            path.parent.rmdir()
    return broken


def _tried(target: Target, path: Path) -> str:
    try:
        target.read(path)
    except target.expected as error:
        return "the error has several lines" if "\n" in str(error) else ""
    except Exception:
        return traceback.format_exc(limit=-4)
    return ""
