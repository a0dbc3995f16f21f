"""How far a healthy number may stray from its centre. The figures: docs/decisions/0002-judging-with-few-samples.md."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`sigma` is the least run-to-run noise assumed, on natural logs; an interval reaches at most `cap` times from its
    centre, however noisy the past was. A `steady` number is one that counts on its own. A `coarse` one shows losses
    of several times: it is measured again only where it looks bad, not until a loss of 10 % is ruled out."""

    sigma: float
    cap: float
    steady: bool = True
    coarse: bool = False


STEADY = Tolerance(sigma=0.25, cap=3.0)
SINGLE_SIZE = Tolerance(sigma=0.4, cap=6.0, steady=False)
