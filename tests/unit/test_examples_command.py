"""`seatrial examples`: what ships is listed, printed and written; nothing is overwritten."""

import json
from pathlib import Path

import pytest

from seatrial.cli.shipped_examples import shipped_examples
from seatrial.config.cluster import load_cluster
from seatrial.text.docs import with_addresses
from tests.command_line import command

ROOT = Path(__file__).parents[2]


def test_every_shipped_example_is_listed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("examples", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    names = [each["name"] for each in listed]
    clusters = {file.stem for file in ROOT.glob("deployments/clusters/*.yaml")}
    suites = {file.stem for file in ROOT.glob("seatrial/checks/suites/*.yaml")}
    assert len(set(names)) == len(names)
    assert clusters | suites < set(names)
    assert all(
        each["purpose"].endswith((".", "?", ":")) or each["name"] in clusters for each in listed
    )
    assert all(Path(each["path"]).exists() for each in listed)
    shipped = {
        path.relative_to(ROOT / "deployments").parts[0]
        for path in (ROOT / "deployments").glob("*/*")
    }
    assert shipped - {"clusters"} < set(names)


def test_a_cluster_file_is_printed_and_written_with_its_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("examples", "a4-gke") == 0
    assert capsys.readouterr().out == (ROOT / "deployments/clusters/a4-gke.yaml").read_text()
    assert command("examples", "a4-gke", "--out", str(tmp_path / "site")) == 0
    assert load_cluster(tmp_path / "site" / "a4-gke.yaml").nodes == 2
    assert {file.name for file in (tmp_path / "site").iterdir()} == {
        "a4-gke.yaml",
        "cluster.schema.json",
    }
    assert command("examples", "a4-gke", "--out", str(tmp_path / "site")) == 2
    assert "is there already" in capsys.readouterr().err


def test_example_folder_is_written_completely(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("examples", "helm", "--out", str(tmp_path)) == 0
    source = {
        path.relative_to(ROOT / "deployments") for path in (ROOT / "deployments/helm").rglob("*")
    }
    assert {path.relative_to(tmp_path) for path in (tmp_path / "helm").rglob("*")} == source - {
        Path("helm")
    }
    assert command("examples", "helm") == 2
    assert "is a folder; --out DIR writes it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a4-gk",), "NAME 'a4-gk': is no example; nearest: a4-gke"),
        (("../../etc/passwd",), "NAME '../../etc/passwd': is no example; "),
        (("--out", "x"), "--out: needs the NAME of an example"),
        (("quick", "--out", "/dev/null"), "--out /dev/null: cannot be written: "),
    ],
)
def test_invalid_arguments_are_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("examples", *words) == 2
    assert capsys.readouterr().err.startswith(f"seatrial: {message}")


def test_references_to_docs_pages_become_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "See docs/kubernetes.md#access, docs/alerts.md; docs/none-of-ours.md"
    shipped = with_addresses(text)
    assert (
        shipped
        == f"See {ROOT}/docs/kubernetes.md#access, {ROOT}/docs/alerts.md; docs/none-of-ours.md"
    )
    monkeypatch.setenv("SEATRIAL_DOCS_URL", "https://docs.example.com/seatrial/")
    assert (
        "https://docs.example.com/seatrial/kubernetes.html#access, https://docs"
        in with_addresses(text)
    )


def test_every_listed_example_exists() -> None:
    assert all(example.path.exists() for example in shipped_examples().values())
