"""`seatrial report` in each of its formats, on a run's folder."""

import io
import json
import os
import re
import resource
import sys
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from seatrial.cli.app import app
from seatrial.history import open_store
from seatrial.model.errors import InputError
from seatrial.report.html import report_html
from seatrial.report.paper import on_paper, pdf_of
from seatrial.tasks.record import measurements_csv, run_json
from tests import samples
from tests.command_line import command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's folder; the history knows it and a good run before it."""
    result = samples.faulty_h100()
    folder = tmp_path / "runs" / result.run_id
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(run_json(result))
    (folder / "measurements.csv").write_text(measurements_csv(result))
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{tmp_path}/history.sqlite")
    monkeypatch.chdir(tmp_path)
    with open_store() as store:
        store.save(samples.night(result, 4, 1.5), tmp_path / "gone")
        store.save(result, folder)
    return folder


def _report(*words: object) -> str:
    result = CliRunner().invoke(
        app, ["report", *(str(word) for word in words)], catch_exceptions=False
    )
    assert result.exit_code == 0
    return result.output


def test_a_run_is_found_by_folder_file_and_id(folder: Path) -> None:
    output = _report(folder)
    assert (Path.cwd() / output.strip()).samefile(folder / "report.html")
    assert "night-4, 13 Mar 2026" in (folder / "report.html").read_text()
    for word in (folder, folder / "run.json", folder.name):
        assert "last good run night-4" in _report(word, "--format", "md")


def test_unknown_run_is_refused_in_one_line(folder: Path) -> None:
    with pytest.raises(InputError, match="RUN nonsense: neither a folder nor a run of the history"):
        _report("nonsense")
    with pytest.raises(InputError, match=r"RUN night-4: its folder .*/gone has it no more"):
        _report("night-4")


def test_a_full_disk_leaves_the_report_that_was_there(folder: Path) -> None:
    (folder / "report.html").write_text("as it was")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, limits[1]))
    try:
        with pytest.raises(
            InputError, match=rf"^{folder}/report\.html: cannot be written: File too large$"
        ):
            _report(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (folder / "report.html").read_text() == "as it was"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_unencodable_characters_are_written_as_escapes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "logs").mkdir()
    (folder / "logs" / os.fsdecode(b"\xff.log")).write_text("said")
    (folder / "run.json").write_text(
        json.dumps({**samples.faulty_h100().to_dict(), "reason": "said \ud800"})
    )
    _report(folder)
    page = (folder / "report.html").read_text()
    assert ("\\udcff.log" in page, "<h1>fail: said" in page) == (True, True)
    stdout = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stdout)
    assert command("report", str(folder), "--format", "md") == 0
    stdout.flush()
    assert stdout.buffer.getvalue().startswith(b"## \\u2715 h100-east\n\n**fail: said")


def test_pdf_is_made_of_text_with_unencodable_characters() -> None:
    pytest.importorskip("weasyprint", exc_type=(ImportError, OSError))  # type: ignore[arg-type]
    assert pdf_of("<p>\udcff.log").startswith(b"%PDF-")


def test_markdown_goes_to_standard_output(folder: Path) -> None:
    output = _report(folder, "--format", "md")
    assert output.startswith("## ✕ h100-east\n\n**fail: node-5 (97 % sure): ")
    assert "### Headline numbers, last good run night-4\n" in output
    assert (
        "| busbw plateau of all\\_reduce | 205 GB/s | 364 – 410 GB/s | 307 GB/s | -33 % | fail |\n"
        in output
    )
    assert "| driver | 565.57.01 | 570.124.06 |\n" in output


def test_json_holds_the_run_last_good_run_headlines_and_software_changes(folder: Path) -> None:
    document = json.loads(_report(folder, "--format", "json"))
    assert document["run"] == json.loads((folder / "run.json").read_text())
    assert document["last_good"]["run_id"] == "night-4"
    plateau = document["headlines"][0]
    assert plateau["name"] == "busbw plateau of all_reduce"
    assert plateau["change"] == pytest.approx(1 / 1.5 - 1)
    assert {"what": "driver", "last_good": "565.57.01", "this_run": "570.124.06"} in document[
        "software"
    ]


def test_a_history_that_is_broken_leaves_a_report_that_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "broken").write_text("no database " * 100)
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{folder}/broken")
    _report(folder)
    assert (
        "Earlier runs are not shown: the history could not be opened."
        in (folder / "report.html").read_text()
    )


def test_the_pdf_is_a4_and_small_enough_to_be_sent(folder: Path) -> None:
    pytest.importorskip("weasyprint", exc_type=(ImportError, OSError))  # type: ignore[arg-type]
    # A table of many rows takes long to lay out
    (folder / "run.json").write_text(run_json(samples.healthy_local()))
    output = _report(folder, "--format", "pdf")
    content = Path(output.strip()).read_bytes()
    assert content.startswith(b"%PDF-")
    streams = re.findall(rb"FlateDecode.*?>>\nstream\n(.*?)\nendstream", content, re.DOTALL)
    objects = b"".join(zlib.decompress(stream) for stream in streams)
    assert re.search(rb"/MediaBox ?\[0 0 595\.\d+ 841\.\d+\]", objects)
    assert len(content) < 300_000


def test_page_for_paper_has_literal_colours_and_no_scripts() -> None:
    page = on_paper(report_html(samples.faulty_h100()))
    drawn = page[page.index("<body>") :]
    assert "var(" not in drawn
    assert "#c62a2f" in drawn
    assert "<script" not in page
    assert 'class="hits"' not in page


def test_without_weasyprint_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with pytest.raises(
        InputError,
        match=r"--format pdf: needs WeasyPrint .*: install seatrial with its extra `pdf`",
    ):
        pdf_of("")
