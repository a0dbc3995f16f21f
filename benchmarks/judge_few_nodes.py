"""How often a suspect among fewer than eight peers, without a history, has a fault: docs/error-rates.md.

python benchmarks/judge_few_nodes.py [--runs 1500]
"""

import argparse
import math

import numpy as np

from seatrial.judge.assess import Assessment, assess
from seatrial.judge.baselines.selection import Knowledge
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.result import Check
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict

NODES = 4
METRICS = {"matmul": "TFLOP/s", "memory_copy": "GB/s", "throughput": "samples/s", "tcp_egress": "MB/s"}
FAULTY = 0.02  # of the series, by 3 to 90 %
SPREAD = 0.01
FREEDOM = 4
MOST_REPEATS = 3


class Fleet:
    """One run of NODES nodes with noise `sd` on natural logs."""

    def __init__(self, sd: float, rng: np.random.Generator) -> None:
        self._sd, self._rng = sd, rng
        self._series = [(f"node-{n}", metric) for n in range(NODES) for metric in METRICS]
        self._level = {one: SPREAD * rng.standard_normal() for one in self._series}
        faulty = [one for one in self._series if rng.random() < FAULTY]
        for one in faulty:
            self._level[one] += math.log(1 - math.exp(rng.uniform(math.log(0.03), math.log(0.9))))
        self.faulty = {node for node, _ in faulty}

    def measure(self, node: str, metric: str) -> Measurement:
        noise = self._sd / math.sqrt(FREEDOM / (FREEDOM - 2)) * self._rng.standard_t(FREEDOM)
        value = 100 * math.exp(self._level[node, metric] + noise)
        return Measurement(metric, value, METRICS[metric], Subject("node", node), better="higher")

    def assessed(self) -> Assessment:
        """Judged as a run is, with what is doubtful measured again."""
        measured = [self.measure(*one) for one in self._series]
        known = Knowledge(Setup("cpu", NODES, 0, 1), nodes=[f"node-{n}" for n in range(NODES)])
        for _ in range(MOST_REPEATS):
            judged = assess([Check("devices", Verdict.PASS, "", 1.0, tuple(measured))], known)
            doubts = [doubt.measurement for some in judged.doubts.values() for doubt in some]
            if not doubts:
                break
            measured += [self.measure(m.subject.name, m.metric) for m in doubts]
        return judged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1500)
    options = parser.parse_args()
    for sd in (0.03, 0.1, 0.2):
        blamed: list[tuple[float, bool]] = []
        for seed in range(options.runs):
            fleet = Fleet(sd, np.random.default_rng([seed, int(1000 * sd)]))
            blamed += [(s.confidence, s.name in fleet.faulty) for s in fleet.assessed().checks[0].suspects]
        for level in sorted({confidence for confidence, _ in blamed}):
            right = [is_faulty for confidence, is_faulty in blamed if confidence == level]
            print(f"noise {sd:.0%}, confidence {level:.0%}: {sum(right)} of {len(right)} suspects have a fault")


if __name__ == "__main__":
    main()
