"""What the first program on a node says, without importing what it asks about."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from seatrial.remote.probes import facts


def test_versions_are_those_that_python_would_import() -> None:
    assert facts.package_version("torch") == metadata.version("torch")
    assert facts.package_version("no-such-package", "paramiko") == metadata.version("paramiko")
    assert facts.package_version("no-such-package") == ""


@pytest.mark.parametrize(
    ("entries", "version"),
    [
        (["torch-2.9.0+cu128.dist-info"], "2.9.0+cu128"),
        (["torch-1.13.1.egg-info"], "1.13.1"),
        (["torch-1.13.1-py3.11.egg-info"], "1.13.1"),
        (
            [
                "torchvision-0.24.dist-info",
                "torch_geometric-2.6.dist-info",
                "torch-extra.dist-info",
            ],
            "",
        ),
        (["nvidia_nccl_cu12-2.27.3.dist-info"], ""),
    ],
)
def test_a_version_is_that_of_the_installed_package(
    entries: list[str], version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for entry in entries:
        (tmp_path / entry).mkdir()
        name, _, rest = entry.partition("-")
        own = re.match(r"[\d.]+(\+\w+)?(?=[.-])", rest)
        lines = f"Metadata-Version: 2.1\nName: {name}\nVersion: {own[0] if own else ''}\n"
        (tmp_path / entry / ("METADATA" if entry.endswith("dist-info") else "PKG-INFO")).write_text(
            lines
        )
    monkeypatch.setattr(sys, "path", [str(tmp_path / "missing"), str(tmp_path)])
    assert facts.package_version("torch") == version


@pytest.mark.parametrize(
    ("libraries", "of_torch", "version"),
    [
        ([], "", ""),
        ([], "2.28.9", "2.28.9"),
        (["/usr/lib64/libnccl.so.2.28.3"], "", "2.28.3"),
        (["/usr/lib64/libnccl.so.2.28.3"], "2.28.3", "2.28.3"),
        (["/usr/lib64/libnccl.so.2.28.3"], "2.28.9", "2.28.3 (torch: 2.28.9)"),
    ],
)
def test_torchs_nccl_is_listed_if_the_system_has_another_one(
    libraries: list[str], of_torch: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "glob", lambda pattern: libraries)
    monkeypatch.setattr(facts, "package_version", lambda *names: of_torch)
    assert facts.nccl_version() == version  # type: ignore[no-untyped-call]


def test_facts_imports_no_slow_module() -> None:
    check = f"""
import runpy, sys
sys.argv = ["facts.py", "no-mpirun"]
runpy.run_path({facts.__file__!r}, run_name="__main__")
print([name for name in ("torch", "numpy") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=60
    )
    answer, imported = done.stdout.splitlines()
    assert json.loads(answer)["hostname"]
    assert imported == "[]"


@pytest.mark.parametrize(
    ("rows", "domain"),
    [
        (2 * ["b4f2e7a1-9c3d-4e5f-8a6b-1c2d3e4f5a6b, 3"], "b4f2e7a1-9c3d-4e5f-8a6b-1c2d3e4f5a6b.3"),
        (
            ["b4f2e7a1-9c3d-4e5f-8a6b-1c2d3e4f5a6b, 3", "b4f2e7a1-9c3d-4e5f-8a6b-1c2d3e4f5a6b, 4"],
            "",
        ),
        (["00000000-0000-0000-0000-000000000000, 0"], ""),  # one node with NVSwitches of its own
        (["[N/A], [N/A]"], ""),
        (['Field "fabric.cliqueId" is not a valid field to query.'], ""),
    ],
)
def test_a_node_names_the_nvlink_domain_of_all_its_gpus(
    rows: list[str], domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\ncat <<'ROWS'\n" + "\n".join(rows) + "\nROWS\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert facts.nvlink_domain() == domain
