"""The output of a site's own burn-in program."""

import re
from collections.abc import Sequence

from seatrial.model.verdict import Verdict
from seatrial.readers.report import SAYS_BAD, Reader, Report, Result

_LINE = re.compile(r"burnin: (node\S{0,60}) (ok|bad)$")


def read(lines: Sequence[str]) -> Report | None:
    """One result for each node."""
    matches = [match for line in lines if (match := _LINE.match(line))]
    words = {"ok": Verdict.PASS, "bad": Verdict.FAIL}
    return Report("burnin", tuple(Result(words[match[2]], SAYS_BAD, match[1]) for match in matches))


BURNIN = Reader("`burnin`", "`fail` for a bad node", ("burnin: ",), _LINE, read, belongs=_LINE)
