"""Which ranks say nothing when the others give up: those that are stopped, hang or were killed.

A rank that gives up says so in the store through which the ranks met, which rank 0 keeps. Copied to the nodes with the
probes.
"""

from __future__ import annotations

import re
import threading
import time
from datetime import timedelta
from itertools import islice
from typing import Any

import torch.distributed as dist

_WAIT_S = 2.0  # for the others' words; they began to wait for the same collective at about the same time
_ANSWER_S = 1.0  # for the store's answers after that
_ASK_S = 0.05  # for the answer about one rank
_NAMED = 8  # silent ranks at most
_MAX_HOST = 100  # characters
_IN_VAIN = re.compile(r"timed out|timeout|connection (?:was )?(?:closed|reset)|broken pipe", re.IGNORECASE)
_NO_STORE = "no word from rank 0, which keeps the store of the ranks"


def announce(rank: int, host: str) -> None:
    """Say in the store where the rank is."""
    _store().set(f"host/{rank}", host)


def silent_ranks(error: BaseException) -> str:
    """Say in the store that this rank gives up; where it waited for others in vain, name those that do not say so.

    `no word from rank 1 on node-1`, or "" where all gave up or nobody can tell.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return ""
    in_vain = bool(_IN_VAIN.search(str(error)))
    place, answers = (dist.get_rank(), dist.get_world_size()), list[str]()
    asking = threading.Thread(target=lambda: answers.append(_ask(*place, in_vain=in_vain)), daemon=True)
    asking.start()
    asking.join(_WAIT_S + 1.5 * _ANSWER_S if in_vain else _ANSWER_S)
    return "".join(answers) if answers or not in_vain or not place[0] else _NO_STORE


def _ask(rank: int, ranks: int, *, in_vain: bool) -> str:
    """Two ranks ask at most: of thousands, each about each other would be millions of questions."""
    try:
        store = _store()
        store.set(f"gave up/{rank}", "")
        others = [other for other in range(ranks) if other != rank]
        if not in_vain or _gave_up(store, others, _WAIT_S):
            return ""
        if rank > 1:
            time.sleep(_ANSWER_S)  # mpirun ends all ranks with the first one that leaves
            return ""
        if not _gave_up(store, [rank], _ASK_S):
            return _NO_STORE
        silent = list(islice((other for other in others if not _gave_up(store, [other], _ASK_S)), _NAMED))
        return _named(store, silent) if 0 < 2 * len(silent) <= ranks else ""
    except Exception:  # whatever a store raises that went away with rank 0, or that this torch does not have
        return ""


def _gave_up(store: Any, ranks: list[int], wait_s: float) -> bool:
    try:
        store.wait([f"gave up/{rank}" for rank in ranks], timedelta(seconds=wait_s))
    except RuntimeError:
        return False
    return True


def _named(store: Any, silent: list[int]) -> str:
    hosts = [store.get(f"host/{rank}").decode()[:_MAX_HOST] for rank in silent]
    return f"no word from {', '.join(f'rank {rank} on {host}' for rank, host in zip(silent, hosts, strict=True))}"


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()
