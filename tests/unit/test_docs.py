"""The site builds without a warning and loads nothing from elsewhere; what is made from the code
says what it says.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from pydantic import BaseModel

from scripts.reference import pages
from seatrial.checks.collectives.section import Collectives
from seatrial.checks.suites import Campaign, SuiteFile, load_suite
from seatrial.cli.app import app
from seatrial.config.cluster import Cluster, load_cluster
from tests.samples import faulty_h100

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WRITTEN = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.rglob("*.md")),
    *(
        path
        for folder in ("deployments", "images", "tests")
        for path in sorted((ROOT / folder).rglob("README.md"))
    ),
]
LINK = re.compile(r"\[[^\]]*\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]*))?\)")
LOADED = re.compile(
    r"<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=\"((?:https?:)?//[^\"]+)\""
)
IMPORTED = re.compile(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--site-dir",
            str(folder),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    made = {path.relative_to(site).with_suffix(".md").as_posix() for path in site.rglob("*.html")}
    assert {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} <= made


def test_the_page_of_the_api_has_public_names_alone(site: Path) -> None:
    titles = re.findall(r"<h[34] id=[^>]*>([\w.]+)", (site / "api.html").read_text())
    assert {"CheckType", "Platform.launch", "Reader", "Measurement", "run_probe"} <= set(titles)
    assert not [title for title in titles if title.rpartition(".")[2].startswith("_")]


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = {
        path: path.read_text()
        for path in (*site.rglob("*.html"), *site.rglob("*.css"), *site.rglob("*.svg"))
    }
    loaded = {f"{path.name}: {url}" for path, text in pages.items() for url in LOADED.findall(text)}
    imported = {
        f"{path.name}: {url}" for path, text in pages.items() for url in IMPORTED.findall(text)
    }
    assert pages
    assert not loaded | imported


def test_relative_links_of_site_pages_stay_within_the_site(site: Path) -> None:
    """scripts/site.py replaces links to other files by their names."""
    targets = {
        (path, target)
        for path in site.rglob("*.html")
        # It may be shown for any address, so its links begin at the root
        if path.name != "404.html"
        for target in re.findall(r"href=\"(?!https?:|#)([^\"#?]+)", path.read_text())
    }
    assert not {
        (path.name, target) for path, target in targets if not (path.parent / target).exists()
    }


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_in_the_docs_have_a_target(path: Path) -> None:
    for target, anchor in LINK.findall(path.read_text()):
        led_to = (path.parent / target).resolve() if target else path
        assert led_to.exists(), target
        if anchor and led_to.suffix == ".md":
            assert anchor in anchors(led_to), f"{target}#{anchor}"


def test_link_pattern_finds_relative_links_only() -> None:
    assert LINK.findall("[a](b.md#c), [d](#e), [f](https://g.h/i)") == [("b.md", "c"), ("", "e")]


def anchors(path: Path) -> set[str]:
    """As GitHub and mkdocs make them of headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def test_generated_pages_are_up_to_date() -> None:
    assert [path.name for path, text in pages().items() if path.read_text() != text] == [], (
        "make docs"
    )


def test_an_editor_finds_the_schema_of_every_example_and_no_error_in_it() -> None:
    examples = [
        *(ROOT / "deployments" / "clusters").glob("*.yaml"),
        *(ROOT / "seatrial").rglob("suites/*.yaml"),
    ]
    assert len(examples) > 15
    for path in examples:
        text = path.read_text()
        (named,) = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", text, re.MULTILINE)
        schema = json.loads((path.parent / named).read_text())
        validator = jsonschema.Draft202012Validator(schema)
        assert [error.message for error in validator.iter_errors(yaml.safe_load(text))] == [], (
            path.name
        )
        assert not validator.is_valid({**yaml.safe_load(text), "no_such_field": 1})


@pytest.mark.parametrize("model", [Cluster, SuiteFile])
def test_every_field_is_described(model: type[BaseModel]) -> None:
    schema = model.model_json_schema()
    for name, part in {"": schema, **schema["$defs"]}.items():
        assert part.get("description"), name
        for field, subschema in part["properties"].items():
            assert subschema.get("description"), f"{name}.{field}"
            assert len(subschema["description"]) < 120, f"{name}.{field}"


COMMAND = re.compile(
    r"(?:^ {4}(?:\$ |.* && )?(?:\.venv/bin/)?|`)seatrial ([a-z][^`\n]*)", re.MULTILINE
)
REST = re.compile(r" {2,}| [#|>\[<]| && ")  # of a line, after the command


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_in_the_docs_use_existing_options(path: Path) -> None:
    for text in COMMAND.findall(path.read_text()):
        words = shlex.split(REST.split(text)[0])
        command: click.Command = app
        while isinstance(command, click.Group) and words:
            name, *words = words
            assert name in command.commands, text
            command = command.commands[name]
        known = {"--help", *(option for parameter in command.params for option in parameter.opts)}
        asked = {
            word.partition("=")[0]
            for word in " ".join(words).partition(" -- ")[0].split()
            if word.startswith("--")
        }
        assert asked <= known, text


def examples(page: Path) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize(
    "text", [text for page in WRITTEN for text in examples(page) if "\nnodes: " in f"\n{text}"]
)
def test_cluster_files_in_the_docs_load(text: str, tmp_path: Path) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(text)
    assert load_cluster(file).nodes == yaml.safe_load(text)["nodes"]


@pytest.mark.parametrize("text", examples(DOCS / "suite-file.md"))
def test_suite_files_in_the_docs_load(text: str, tmp_path: Path) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(text)
    suite = load_suite(str(file))
    assert suite.section(Collectives) or suite.section(Campaign)


def test_every_field_of_run_json_is_described() -> None:
    # Whose keys differ
    text, free = (
        (DOCS / "run-json.md").read_text(),
        {"conditions", "fingerprint", "timings", "values"},
    )
    names = set(keys(faulty_h100().to_dict(), free))
    assert {"schema", "deviation", "confidence", "slots"} <= names
    assert not {key for key in names if f'"{key}"' not in text}


def keys(document: Any, free: set[str]) -> Iterator[str]:
    """Every key in a document, and in what it holds."""
    if isinstance(document, list):
        yield from (key for part in document for key in keys(part, free))
    elif isinstance(document, dict):
        yield from document
        yield from (
            key for name, part in document.items() if name not in free for key in keys(part, free)
        )
