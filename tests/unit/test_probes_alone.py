"""Probes run on the nodes: they import the standard library, torch and each other; more only if they can do without."""

import ast
import sys
from pathlib import Path

import pytest

from seatrial.remote.probes import PROBES

# torch measures processors where numpy is missing, nvidia-smi reads sensors where nvidia-ml-py is; only folders of
# images need Pillow, which a probe asks for by name.
OPTIONAL = {"devices": {"numpy"}, "torch_device": {"pynvml"}, "datasets": {"PIL"}}
ALLOWED = sys.stdlib_module_names | {"torch"} | {path.stem for path in PROBES}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("path", PROBES, ids=lambda path: path.stem)
def test_a_probe_imports_nothing_that_a_node_lacks(path: Path) -> None:
    assert imported(path) <= ALLOWED | OPTIONAL.get(path.stem, set())
