"""`seatrial simulate`: how often the judge is right about a fleet whose faults are known."""

import click

from seatrial.cli.options import json_option, print_json


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
@click.option("--trials", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Trials per fault.")
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
@json_option
def simulate(nodes: int, nights: int, trials: int, healthy: int, seed: int, as_json: bool) -> None:
    """Inject faults into a simulated fleet and score the judge's verdicts and blame against the truth.

    Simulates 3 % noise per measurement with heavy tails, 1 % permanent spread between nodes, and a month of healthy
    nights before the first fault.
    """
    import numpy as np

    from seatrial.simulate.noise import Noise
    from seatrial.simulate.report import simulated_json, simulated_table
    from seatrial.simulate.score import quiet, scores

    rng = np.random.default_rng(seed)
    calm = quiet(nodes, healthy, Noise(), rng)
    results = list(scores(nodes, nights, trials, Noise(), rng))
    if as_json:
        print_json(simulated_json(nodes, seed, calm, results))
    else:
        from rich.console import Console

        Console().print(simulated_table(calm, results))
