"""`seatrial simulate`: how often the judge is right about a fleet whose faults are known."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.cli.options import json_option, print_json

if TYPE_CHECKING:
    import numpy as np


@click.command()
@click.option(
    "--nodes",
    type=click.IntRange(4, 20_000),
    default=64,
    show_default=True,
    help="Number of nodes, with eight GPUs each.",
)
@click.option(
    "--nights", type=click.IntRange(1, 1000), default=10, show_default=True, help="Nights that a fault lasts."
)
@click.option("--trials", type=click.IntRange(1, 10_000), default=5, show_default=True, help="Trials per fault.")
@click.option(
    "--healthy", type=click.IntRange(0, 100_000), default=50, show_default=True, help="Number of healthy nights."
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Random seed; the same seed gives the same numbers.",
)
@click.option(
    "--csv",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the readings of one fleet with a slow node to this file, for `seatrial replay`, and judge nothing.",
)
@json_option
def simulate(nodes: int, nights: int, trials: int, healthy: int, seed: int, file: Path | None, as_json: bool) -> None:
    """Inject faults into a simulated fleet and score the judge's verdicts and suspects against the truth.

    Readings have 3 % noise with heavy tails, nodes differ by 1 %, and every fault follows ten healthy nights.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    if file:
        written = _write(file, nodes, nights, rng)
        print_json(written) if as_json else click.echo(_SENTENCE.format(**written))
        return
    from seatrial.simulate.score import quiet, scores, simulated_json, simulated_table

    calm = quiet(nodes, healthy, rng)
    results = list(scores(nodes, nights, trials, rng))
    if as_json:
        print_json(simulated_json(nodes, seed, calm, results))
    else:
        from rich.console import Console

        Console().print(simulated_table(calm, results))


_SENTENCE = "{subject} is {size} slower from {from_run} on. Judge these nights: seatrial replay {file}"


def _write(file: Path, nodes: int, nights: int, rng: "np.random.Generator") -> dict[str, str]:
    """Write a fleet with a slow node; which one, by how much, and from which run on."""
    from seatrial.simulate.rows import RUN, fleet_series, make
    from seatrial.simulate.score import NIGHTS_BEFORE, simulated_rows

    fault = make("slow node", "10 %", fleet_series(nodes, RUN), rng)
    rows = simulated_rows(nodes, nights, fault, rng)
    rows.to_csv(file, index=False, float_format="%.6g")
    from_run = rows["run_id"].unique()[NIGHTS_BEFORE]
    return {"file": str(file), "subject": fault.culprit, "size": fault.size, "from_run": from_run}
