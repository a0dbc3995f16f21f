"""Values that a shell completes: suites, checks, hardware, codes, clusters, runs and nodes.

A shell asks at each press of Tab, so values that cannot be read are left out without a message.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

_MOST = 200  # values that a shell is given

Values = Callable[[click.Context], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Completion:
    """The callback of a parameter: the values that begin with the typed word; with `files`, files
    of the folder too.
    """

    values: Values
    files: bool = False

    def __call__(
        self, context: click.Context, parameter: click.Parameter, typed: str
    ) -> list[CompletionItem]:
        import logging

        values: list[str] = []
        # Its words would stand in the command line
        logging.getLogger("seatrial").setLevel(logging.CRITICAL)
        with suppress(Exception):
            values = list(dict.fromkeys(self.values(context)))
        items = [CompletionItem(value) for value in values if value.startswith(typed)]
        items = items[:_MOST]
        if self.files:
            items.append(CompletionItem(typed, type="file"))
        return items


@partial(Completion, files=True)
def suites(context: click.Context) -> Iterable[str]:
    from seatrial.checks.suites import SHIPPED

    return SHIPPED


@partial(Completion, files=True)
def requirements(context: click.Context) -> Iterable[str]:
    from seatrial.certificate.requirements import SHIPPED

    return SHIPPED


@Completion
def checks(context: click.Context) -> Iterable[str]:
    from seatrial.checks.table import CHECKS

    return [kind.name for kind in CHECKS]


@Completion
def hardware(context: click.Context) -> Iterable[str]:
    from seatrial.catalog import known_hardware

    return known_hardware()


@Completion
def fabrics(context: click.Context) -> Iterable[str]:
    from seatrial.catalog import known_fabrics

    return known_fabrics()


@Completion
def codes(context: click.Context) -> Iterable[str]:
    """Yield the codes of reasons, then the words of results, then the fields of cluster and suite
    files.
    """
    from seatrial.checks.suites import SuiteFile
    from seatrial.config.cluster import Cluster
    from seatrial.config.fields import sections
    from seatrial.runs.explanations import CATALOG
    from seatrial.runs.vocabulary import words

    yield from sorted(CATALOG)
    yield from dict.fromkeys(word.name for word in words())
    for model in (Cluster, SuiteFile):
        for section in sections(model):
            for path, _ in section.paths():
                yield path


@Completion
def examples(context: click.Context) -> Iterable[str]:
    from seatrial.cli.shipped_examples import shipped_examples

    return shipped_examples()


def _recorded() -> list[Any]:
    """Return the newest rows of the history."""
    from seatrial.history import open_store

    with open_store() as store:
        return list(store.runs(None, _MOST))


@partial(Completion, files=True)
def clusters(context: click.Context) -> Iterable[str]:
    return sorted({row.cluster for row in _recorded()})


@partial(Completion, files=True)
def runs(context: click.Context) -> Iterable[str]:
    return [row.run_id for row in _recorded()]


@Completion
def runs_up(context: click.Context) -> Iterable[str]:
    """Return the runs whose nodes are up on this machine, newest first."""
    from seatrial.platforms import state as states

    return reversed(states.run_ids())


@Completion
def nodes_of_run(context: click.Context) -> Iterable[str]:
    """Yield the nodes of the run that is named before them."""
    from seatrial.platforms import state as states
    from seatrial.runs.login import folder_of

    yield "head"
    _, folder = folder_of(context.params["run"])
    yield from states.recall(folder).node_names()


@Completion
def nodes_of_cluster(context: click.Context) -> Iterable[str]:
    """Yield the nodes that the last run of the cluster file had."""
    from seatrial.config.cluster import load_cluster
    from seatrial.history import open_store

    cluster = load_cluster(Path(context.params["cluster"]))
    with open_store() as store:
        newest = [row.run_id for row in store.runs(cluster.name, 1)]
        for nodes in store.hardware(newest).values():
            yield from nodes
