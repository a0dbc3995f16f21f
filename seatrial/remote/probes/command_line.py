"""The command line of a probe, defined by a table of its options. Copied to the nodes next to the
probes.

A row has the option with the name of its value, "--results FILE"; the kind of value; the default;
and the text for --help, HIDDEN for an option that only tests use. The kind is a type, a tuple of
all values, `bool` for an option without a value, or a dict of arguments for argparse.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import Field
from typing import Any, Optional

Option = tuple[str, Any, Any, Optional[str]]

HIDDEN = argparse.SUPPRESS
PEAK_TFLOPS: Option = ("--peak-tflops", float, None, "of one GPU in that precision, for the MFU")
# Options of every probe with a rendezvous
OF_RANKS: tuple[Option, ...] = (
    (
        "--master-addr",
        str,
        None,
        "address of rank 0's node; MASTER_ADDR or the job's first node when unset",
    ),
    ("--master-port", int, None, "a free port there; MASTER_PORT or 29500 when unset"),
    (
        "--network",
        str,
        None,
        "CIDR or interface that the ranks talk over; the way to rank 0 when unset",
    ),
    ("--timeout-s", float, 60.0, "for the ranks to meet, and for one collective"),
)


def option_of(field: Field[int], words: str) -> Option:
    """Return the option for a size field of a model."""
    name = field.name.replace("_", "-")
    return f"--{name}", int, None, words


def asked(options: argparse.Namespace, fields: Iterable[Field[int]]) -> dict[str, int]:
    """Return the values of those fields that were given as options."""
    values = {field.name: getattr(options, field.name) for field in fields}
    return {name: value for name, value in values.items() if value is not None}


def parser_of(
    program: str | None, document: str | None, options: Iterable[Option]
) -> argparse.ArgumentParser:
    """Return the parser of a probe's options; the first line of `document` is its description.

    Without `program`, --help shows the name of the started file.
    """
    description = (document or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog=program, description=description)
    for option, value, default, words in options:
        name, _, placeholder = option.partition(" ")
        settings: dict[str, Any] = {"type": value}
        if isinstance(value, dict):
            settings = dict(value)
        elif isinstance(value, tuple):
            settings = {"choices": value}
        elif value is bool:
            settings = {"action": "store_true"}
        if placeholder:
            settings["metavar"] = placeholder
        parser.add_argument(name, default=default, help=words, **settings)
    return parser
