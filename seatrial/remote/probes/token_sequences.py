"""The sequences that pretraining.py trains on: those of a file in order, or synthetic ones.

In a synthetic sequence each token is 5 x + 7 modulo the vocabulary, which can be learnt. Copied to
the nodes next to training.py.
"""

from __future__ import annotations

from argparse import Namespace
from functools import cached_property
from pathlib import Path

import torch
from rendezvous import CannotStart
from torch import Tensor


class TokenSequences:
    """Sequences by number, the same on every rank.

    Each has one token more than a model's input: labels are the next tokens of the inputs.
    """

    def __init__(self, options: Namespace, vocabulary: int, device: torch.device) -> None:
        self.length = options.sequence + 1
        self.seeded = options.seed * 7919
        self.vocabulary = vocabulary
        self.device = device
        self.tokens: Tensor | None = None
        if options.tokens:
            self.tokens = open_tokens(options.tokens)

    def take(self, first: int, count: int) -> Tensor:
        """Return sequences (count, length) from the number `first` on."""
        if self.tokens is None:
            return self._synthetic(range(first, first + count))
        places = torch.arange(first * self.length, (first + count) * self.length)
        tokens = self.tokens[places % len(self.tokens)].long() % self.vocabulary
        return tokens.view(count, -1).to(self.device, non_blocking=True)

    def _synthetic(self, numbers: range) -> Tensor:
        starts = []
        for number in numbers:
            start = self.seeded + number * 104_729
            starts.append(start % self.vocabulary)
        first_tokens = torch.tensor(starts, device=self.device)
        factors, terms = self._recurrence
        return (first_tokens[:, None] * factors + terms) % self.vocabulary

    @cached_property
    def _recurrence(self) -> tuple[Tensor, Tensor]:
        """Return factors and terms of token i as a function of the first: 5 x + 7, i times, modulo
        the vocabulary.
        """
        factor = 1
        term = 0
        factors = []
        terms = []
        for _ in range(self.length):
            factors.append(factor)
            terms.append(term)
            factor = 5 * factor % self.vocabulary
            term = (5 * term + 7) % self.vocabulary
        device = self.device
        return torch.tensor(factors, device=device), torch.tensor(terms, device=device)


def open_tokens(path: str) -> Tensor:
    """Return the tokens in a file of 32 bit numbers, which are read on demand.

    Raises CannotStart.
    """
    try:
        count = Path(path).stat().st_size // 4
        return torch.from_file(path, shared=False, size=count, dtype=torch.int32)
    except (OSError, RuntimeError) as error:
        raise CannotStart(f"{path}: cannot be read as tokens: {error}") from error
