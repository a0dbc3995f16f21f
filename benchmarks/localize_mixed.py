"""How well a fault is localized in logs as real clusters leave them: print a table of what is named
for it.

    python -m benchmarks.localize_mixed [--fleets 240] [--first 0] [--show another] [--oracle]

The fleets are those of benchmarks/mixed_fleets.py. --oracle adds of how many an oracle
(benchmarks/localize_oracle.py) is sure.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.localize_oracle import share_of_fault
from benchmarks.mixed_fleets import GPUS, Fault, Fleet, fleet_of
from seatrial.localize import Finding, localize

NAMED = 0.9
OUTCOMES = ("right", "a part", "cannot tell", "nothing", "another")


def is_right(finding: Finding, fleet: Fleet) -> bool:
    """Whether what is named is the fault, or slows the same tests on the same nodes."""
    fault, unsure = fleet.fault, set(finding.unsure)
    if fault.groups:
        sides = [set(side) - unsure for side in finding.sides]
        groups = [sure for group in fault.groups if (sure := set(group) - unsure)]
        return (
            finding.kind == "cut"
            and len(sides) == len(groups) > 1
            and all(group in sides for group in groups)
        )
    if finding.kind in ("cut", "placement") or (finding.kind == "link") != (fault.kind == "link"):
        return False
    if not set(finding.nodes) <= set(fault.nodes) or not set(fault.nodes) <= {
        *finding.nodes,
        *unsure,
    }:
        return False
    return touched(finding, finding.nodes, fleet) == touched(fault, finding.nodes, fleet)


def is_a_part(finding: Finding, fleet: Fleet) -> bool:
    """Whether what is named is on nodes with the fault, and its GPUs are those, or never were
    tested without these.
    """
    fault = fleet.fault
    inside = (
        len(finding.nodes) > 0
        and set(finding.nodes) <= set(fault.nodes)
        and finding.kind not in ("cut", "link")
    )
    return inside and touched(finding, finding.nodes, fleet) <= touched(fault, finding.nodes, fleet)


def touched(part: "Finding | Fault", nodes: Sequence[str], fleet: Fleet) -> set[int]:
    """The tests with the GPUs of a part on these nodes."""
    gpus = set(part.gpus if isinstance(part, Fault) else part.cause.gpus or GPUS)
    of_nodes = (i for i, test in enumerate(fleet.tests) if not set(nodes).isdisjoint(test.nodes))
    return {i for i in of_nodes if not gpus.isdisjoint(fleet.tests[i].gpus[0])}


def outcome_of(fleet: Fleet, findings: Sequence[Finding], passed: bool) -> str:
    named = [finding for finding in findings if finding.named]
    open_ = {node for finding in findings if not finding.named for node in finding.nodes}
    named = [
        replace(f, unsure=(*f.unsure, *sorted(open_))) if f.kind == "cut" else f for f in named
    ]
    right = [is_right(finding, fleet) for finding in named]
    if fleet.fault.kind == "none" and not named:
        return "right" if passed else "cannot tell"
    if not named:
        return "nothing" if passed else "cannot tell"
    if all(right):
        return "right"
    parts = [is_a_part(finding, fleet) for finding in named]
    return "a part" if all(a or b for a, b in zip(right, parts, strict=True)) else "another"


def rows_of(fleet: Fleet) -> list[str]:
    """The rows of the table that a fleet counts in."""
    rows = [fleet.fault.kind, "all"]
    if fleet.fault.kind != "none":
        rows += [
            f"{len(fleet.level)} operations",
            "intermittent" if fleet.penetrance < 1 else "always",
        ]
        rows += ["halves"] if fleet.style == "halves" else []
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=240)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", nargs="*", default=[], choices=OUTCOMES)
    parser.add_argument("--oracle", action="store_true")
    wanted = parser.parse_args()
    table, blamed = defaultdict[str, Counter[str]](Counter), Counter[str]()
    by_oracle = Counter[str]()
    for seed in range(wanted.first, wanted.first + wanted.fleets):
        fleet = fleet_of(seed)
        localization = localize(fleet.tests)
        outcome = outcome_of(fleet, localization.findings, localization.verdict.value == "pass")
        healthy = {
            n
            for f in localization.findings
            if f.named and f.kind not in ("cut", "leaf")
            for n in f.nodes
        }
        is_sure = wanted.oracle and share_of_fault(fleet) >= NAMED
        for row in rows_of(fleet):
            table[row][outcome] += 1
            by_oracle[row] += is_sure
            blamed[row] += not healthy <= set(fleet.fault.nodes)
        if outcome in wanted.show:
            print(
                f"{seed} {outcome}: {fleet.fault} {fleet.style} {fleet.penetrance:.2f}\n  "
                f"{localization.reason}"
            )
    print(f"| fault | fleets | {' | '.join(OUTCOMES)} | healthy nodes blamed | an oracle is sure |")
    print("|---" * (len(OUTCOMES) + 4) + "|")
    for row, counts in table.items():
        cells = [row, counts.total(), *(counts[outcome] for outcome in OUTCOMES), blamed[row]]
        cells.append(by_oracle[row] if wanted.oracle else "–")
        print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
