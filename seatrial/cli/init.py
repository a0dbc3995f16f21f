"""`seatrial init`: write a cluster file from what the site has."""

import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seatrial.cli.examples import write_schema
from seatrial.cli.options import FILE, waiting, write_new
from seatrial.model.errors import InputError, SeatrialError
from seatrial.system.shipped import CLUSTER_SCHEMA

if TYPE_CHECKING:
    from seatrial.platforms.drafts import Choose, Draft, Site

_KINDS = ("kubernetes", "slurm", "runai", "baremetal", "docker", "this-machine", "local")


@click.command()
@click.argument("file", type=FILE, required=False)
@click.option(
    "--platform",
    "kind",
    type=click.Choice(_KINDS),
    help="Platform of the file; default: what is there.",
)
@click.option("--context", help="Context of the kubeconfig; default: the current one.")
@click.option("--namespace", help="Namespace of the runs; default: that of the context.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="Slurm's login node, or a host or range of bare metal (gpu-[01-04]), by ssh; or a "
    "Docker host (ssh://gpu-1).",
)
@click.option(
    "--yes", is_flag=True, help="Ask nothing: take the likeliest, and leave the rest to fill in."
)
def init(
    file: Path | None,
    kind: str | None,
    context: str | None,
    namespace: str | None,
    hosts: tuple[str, ...],
    yes: bool,
) -> None:
    """Write a cluster FILE from what is there: a kubeconfig, Slurm, RunAI, hosts, Docker, or this
    machine's GPUs.

    FILE is never overwritten; default: the cluster's name and .yaml. Asks for what cannot be seen,
    such as the image. The JSON Schema by which editors check FILE is written beside it.
    """
    if file and os.path.lexists(file):
        raise _exists(file)
    with waiting("looking at what there is"):
        from seatrial.platforms.drafts import Site
        from seatrial.platforms.survey import completed, present

        site = Site(context, namespace, _legal_hosts(hosts, kind))
        kinds = [kind] if kind else present(site)

    def choose(field: str, there: Any) -> str:
        return (
            str(there[0])
            if yes or len(there) == 1
            else str(_asked(field, click.Choice(there), there[0]))
        )

    kind, draft = _first_draft(kinds, choose, site, may_pass_over=not yes or bool(site.hosts))
    name = (
        re.sub(r"[^a-z0-9]+", "-", str(draft["name"].value).lower()).strip("-")[:40].strip("-")
        or kind
    )
    draft["name"] = replace(draft["name"], value=name)
    file = file or Path(f"{name}.yaml")
    for field in [] if yes else [field for field, seen in draft.items() if seen.is_open]:
        draft = completed(_answered(draft, field, kind, file))
    _write(file, draft, kind)
    print(f"{file}: written; check it: seatrial doctor {file}")
    if missing := [field for field, seen in draft.items() if seen.is_open]:
        print(f"to fill in: {', '.join(missing)}")


def _first_draft(
    kinds: list[str], choose: "Choose", site: "Site", *, may_pass_over: bool
) -> tuple[str, "Draft"]:
    """Return the first platform of `kinds` that has a draft, and the draft.

    Raises SeatrialError if none has a draft, or if one has none and may not be passed over: a file
    of another kind is not what the kubeconfig or the commands ask for.
    """
    from seatrial.platforms.survey import SURVEYS
    from seatrial.text.words import plain

    while True:
        kind = choose("platform.kind", kinds)
        kinds.remove(kind)
        try:
            return kind, SURVEYS[kind](choose, site)
        except SeatrialError as error:
            if not kinds:
                raise
            if not may_pass_over:
                kept = InputError if isinstance(error, InputError) else SeatrialError
                raise kept(f"{kind}: {error}; --platform {kinds[0]} passes over it") from error
            click.echo(f"not {kind}: {plain(error)}", err=True)


def _legal_hosts(hosts: tuple[str, ...], kind: str | None) -> tuple[str, ...]:
    """Raise InputError for hosts that ssh would take for an option, or that the platform has no use
    for.
    """
    for host in hosts:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:/@,\[\]-]{0,254}", host):
            raise InputError(
                f"--host {host[:80]!r}: must be a host, a range such as gpu-[01-04], or ssh://HOST"
            )
    if hosts and kind not in (None, "slurm", "baremetal", "docker"):
        raise InputError(
            f"--host: has no use with --platform {kind}; legal: slurm, baremetal, docker"
        )
    return hosts


def _asked(question: str, answer: Any, default: Any) -> Any:
    try:
        return click.prompt(
            question, type=answer, default=default, show_default=default != "", err=True
        )
    except click.Abort:
        if sys.stdin.isatty():  # Ctrl-C
            raise
        raise InputError(f"{question}: standard input has no answer; --yes asks nothing") from None


def _answered(draft: "Draft", field: str, kind: str, file: Path) -> "Draft":
    """Ask until the answer is legal in the file; an empty one leaves the field as it is."""
    from seatrial.catalog import known_hardware
    from seatrial.platforms.survey import completed

    seen = draft[field]
    shown = seen.value["name"] if isinstance(seen.value, dict) else seen.value
    click.echo(
        "\n".join(_comment(f"{_descriptions(kind)[field]}{f'; {seen.note}' if seen.note else ''}")),
        err=True,
    )
    while True:
        answer = str(_asked(field, str, "" if shown is None else str(shown))).strip()[:1000]
        if not answer:
            return draft
        value: Any = answer
        if field == "nodes" and answer.isdecimal():
            value = int(answer)
        elif field == "hardware" and answer not in known_hardware():
            value = {"name": answer}
        new = {**draft, field: replace(seen, value=value, is_open=False)}
        try:
            _check(_text(completed(new), kind), file)
        except InputError as error:
            for line in getattr(error, "lines", (str(error),)):
                click.echo(line.removeprefix(f"{file}: "), err=True)
        else:
            return new


def _check(text: str, file: Path) -> None:
    """Read the text as `load_cluster` does. Raises InputError."""
    from seatrial.config.cluster import Cluster
    from seatrial.config.yamlfile import read_yaml
    from seatrial.platforms import platform_for

    platform_for(read_yaml(text, file, Cluster), file)


def _write(file: Path, draft: "Draft", kind: str) -> None:
    text = _text(draft, kind)
    _check(text, file)
    write_new(file, text.encode(), _exists(file))
    write_schema(file.parent)


def _exists(file: Path) -> InputError:
    return InputError(f"{file}: is there already; remove it, or name another file")


def _text(draft: "Draft", kind: str) -> str:
    """Return the text of the file: comments on the meaning and source of each field, and the
    field.
    """
    described = _descriptions(kind)
    fields = sorted(draft, key=list(described).index)
    lines = [
        (
            f"# Written by `seatrial init` for platform {kind}. `seatrial explain FIELD` says "
            "more of a field."
        )
    ]
    lines += [f"# yaml-language-server: $schema={CLUSTER_SCHEMA.name}"]
    for field in fields:
        if "." not in field:
            lines += _lines(field, draft, described[field])
    lines += ["platform:", f"  kind: {kind}"]
    for field in fields:
        if "." in field:
            lines += (f"  {line}" for line in _lines(field, draft, described[field]))
    return "\n".join(lines) + "\n"


def _lines(field: str, draft: "Draft", description: str) -> Iterator[str]:
    import yaml

    from seatrial.text.words import plain

    seen = draft[field]
    name = field.rpartition(".")[2]
    open_note = "to fill in" if seen.is_open else ""
    yield from _comment(
        plain("; ".join(part for part in (description, seen.note, open_note) if part))
    )
    value = (
        yaml.safe_dump(seen.value, default_flow_style=True, width=float("inf"))
        .removesuffix("...\n")
        .strip()
    )
    is_unset = seen.unset or seen.value is None
    yield f"{'# ' if is_unset else ''}{name}:{'' if seen.value is None else f' {value}'}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        text, 110, initial_indent="# ", subsequent_indent="# ", break_long_words=False
    )


def _descriptions(kind: str) -> Mapping[str, str]:
    """Return what each field of the file means, in the order of the models."""
    from seatrial.config import PLATFORMS
    from seatrial.config.cluster import Cluster

    own = {name: info.description or "" for name, info in Cluster.model_fields.items()}
    settings = PLATFORMS[kind]().model_fields
    return {
        **own,
        **{f"platform.{name}": info.description or "" for name, info in settings.items()},
    }
