"""Every cluster file that ships: `render` and `doctor` answer, and an error in it is one line with
exit status 2.
"""

import os
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command_line import command

FOLDER = Path(__file__).parents[2] / "deployments" / "clusters"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))
by_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


@pytest.fixture(autouse=True)
def machine_without_clusters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Docker, Slurm, RunAI or Kubernetes of the person who runs the tests is asked."""
    for program in ("ssh", "ip", "unshare", "nsenter", "sshd", "true", "mpirun", "python3"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        for folder in (*os.environ["PATH"].split(":"), "/usr/sbin"):
            if (Path(folder) / program).exists():
                (tmp_path / "bin" / program).symlink_to(Path(folder) / program)
                break
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@by_example
def test_every_example_renders(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("render", str(example)) == 0
    out, err = capsys.readouterr()
    assert not err
    platform = yaml.safe_load(example.read_text())["platform"]
    if platform["kind"] != "this-machine" and platform.get("launch", "sshd") == "sshd":
        assert "# --- sweeps.sh\n" in out
        assert "mpirun --allow-run-as-root --hostfile /" in out
        assert " all_reduce_perf -b " in out or "collective.py --operation all_reduce" in out


@by_example
def test_doctor_answers_with_the_next_step(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = command("doctor", str(example))
    out, err = capsys.readouterr()
    assert not err
    kind = yaml.safe_load(example.read_text())["platform"]["kind"]
    about_platform = [line for line in out.splitlines() if line[8:].startswith(f"platform {kind}")]
    missing = [line for line in about_platform if line.startswith("missing ")]
    assert missing or about_platform == [f"ok      platform {kind}"]
    assert out.count("        next step: ") >= bool(missing)
    assert status == (1 if "missing " in out else 0)


def fields_of(section: dict[str, Any], *path: str) -> Iterator[tuple[str, ...]]:
    """The way to every field whose name the schema gives, of the cluster file and its sections
    platform and image.
    """
    for name, value in section.items():
        yield (*path, name)
        if not path and name in ("platform", "image") and isinstance(value, dict):
            yield from fields_of(value, name)


@by_example
def test_a_misspelt_field_is_one_line_that_names_what_is_legal(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = yaml.safe_load(example.read_text())
    for *path, name in fields_of(document):
        if name in ("kind", "builder"):
            continue  # they choose what the others mean; see the next test
        broken = deepcopy(document)
        section = broken[path[0]] if path else broken
        section[f"{name}z"] = section.pop(name)
        error = refusal(broken, tmp_path, capsys)
        assert f"{name}z: unknown field" in error
        assert name in error.partition("; nearest: ")[2], error
    assert command("doctor", str(tmp_path / "broken.yaml")) == 2
    assert capsys.readouterr().err == error


@by_example
def test_an_illegal_value_is_one_line_that_names_the_field(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = yaml.safe_load(example.read_text())
    for *path, name in fields_of(document):
        for value in ({"a": {"b": [1]}}, -1, "\x1b[2J"):
            broken = deepcopy(document)
            (broken[path[0]] if path else broken)[name] = value
            assert name in refusal(broken, tmp_path, capsys)


def refusal(document: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The lines with which `render` refuses it: two where what is misspelt is also missing."""
    file = folder / "broken.yaml"
    file.write_text(yaml.safe_dump(document))
    assert command("render", str(file)) == 2, document
    out, err = capsys.readouterr()
    assert (out, "\x1b" in err) == ("", False), err
    assert 1 <= err.count("\n") <= 2, err
    assert all(line.startswith(f"seatrial: {file}: ") for line in err.splitlines()), err
    return err
