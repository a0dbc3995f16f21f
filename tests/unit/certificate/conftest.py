"""Runs with numbers of our choice, requirements over them, and the command."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from seatrial.cli.app import app
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check, CheckResult, Expected, Judgement, RunResult
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict

BUSBW = {
    "id": "BW",
    "text": "The bus bandwidth.",
    "check": "collectives",
    "metric": "busbw",
    "limit": {"at_least": 50},
    "unit": "GB/s",
}
CONDITIONS: dict[str, Any] = {"operation": "all_reduce", "message_bytes": 1 << 30}


def judgement(
    value: float, node: str = "", verdict: Verdict = Verdict.PASS, **more: Any
) -> Judgement:
    """A busbw of all_reduce at 1 GiB, of the cluster or of a node."""
    subject = Subject("node", node) if node else Subject("cluster", "c")
    subject = more.pop("subject", subject)
    source = more.pop("source", "history")
    measurement = Measurement(
        "busbw", value, more.pop("unit", "GB/s"), subject, {**CONDITIONS, **more}
    )
    return Judgement(measurement, verdict, uncoded("as expected"), source, Expected(1.0, None))


def run_of(
    *judgements: Judgement, run_id: str = "run-1", verdict: Verdict = Verdict.PASS, gpus: int = 0
) -> RunResult:
    """A run of two nodes with one check, whose own result is `verdict`."""
    check = Check(
        "collectives",
        verdict,
        uncoded("all pass"),
        judgements=judgements,
        raw_result=CheckResult(verdict, uncoded("why")),
    )
    start = datetime(2026, 3, 14, 2, 0, tzinfo=UTC)
    nodes: list[dict[str, Any]] = [{"name": name, "gpus": gpus} for name in ("node-0", "node-1")]
    setup = Setup("H100-SXM", 2, 8, 8)
    run = RunResult(
        run_id,
        "c",
        "quick",
        start,
        start,
        verdict,
        uncoded("all pass"),
        nodes,
        [check],
        setup=setup,
    )
    return replace(run, fingerprint={"nccl": "2.27"})


class Site:
    """A folder with runs and requirements, in which `seatrial certify` and `verify` are called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "certificate"

    def certify(
        self,
        runs: Sequence[RunResult],
        requirements: Sequence[Mapping[str, Any]],
        *options: object,
        **fields: Any,
    ) -> tuple[int, str]:
        """Write the runs and requirements, and make the certificate of them."""
        folders = []
        for number, run in enumerate(runs):
            folder = self.folder / f"given-{number}"
            folder.mkdir(exist_ok=True)
            (folder / "run.json").write_text(json.dumps(run.to_dict()))
            folders.append(folder)
        file = self.folder / "given.yaml"
        file.write_text(
            yaml.safe_dump({"name": "Test", "requirements": list(requirements), **fields})
        )
        return command(
            "certify", *folders, "--requirements", file, "--out", self.certificate, *options
        )

    def read(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.certificate / "certificate.json").read_text())
        return document

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["id"]: row for row in self.read()["requirements"]}


def command(*words: object) -> tuple[int, str]:
    """Exit status and output; bad input is what `main` makes of it."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        return 2, str(result.exception)
    return result.exit_code, result.output


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
