"""Every so many steps of a training: do the ranks that share parameters hold the same bits of them?

Each rank gathers its parameters whole, as `fully_shard` and DTensor do for a step, and takes a
digest. Gathering only moves data, so a digest that differs is of data that changed on its way, in a
memory, or in a part that ranks hold twice and computed differently. It is gathered three times
then, to tell once from always. Copied to the nodes next to training.py.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

import rendezvous
import torch
from parallel import Meshes
from rendezvous import Gathered, RankPlacement
from replays import digest_of, flip_bit, is_wrong, odd
from torch import nn
from torch.distributed.tensor import DTensor

_TIMES = 3


def differing(
    model: nn.Module, meshes: Meshes, options: Namespace, here: RankPlacement, device: str
) -> Gathered:
    """Return the ranks whose parameters are not those of the majority that shares them; every rank
    calls this.
    """
    group = f"{meshes.rank('pp')} {meshes.rank('ep')}"  # the same layers and the same experts
    digests: list[str] = []
    mine = {
        "rank": here.rank,
        "host": here.host,
        "kind": group,
        "digests": digests,
        "wrong_sums": 0,
    }
    outliers: Gathered = []
    for time in range(_TIMES):
        digests.append(digest_of(_whole(model, is_wrong=is_wrong(options, here, "copy", time))))
        outliers = odd(rendezvous.exchange(mine, device))
        if not outliers:
            break
    return [{**each, "by": "copy"} for each in outliers]


def _whole(model: nn.Module, *, is_wrong: bool) -> Iterator[torch.Tensor]:
    """Yield the parameters of this rank's layers, each gathered by itself: the largest must fit
    beside them.
    """
    for number, parameter in enumerate(model.parameters()):
        whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        if is_wrong and not number:
            whole = whole.detach().clone()
            flip_bit(whole)
        yield whole
