"""The pages of docs/ that are made from the code: what cluster and suite files may say, the causes that logs
name, and the codes of reasons; and the JSON Schemas of both files.

`make docs` writes them anew; a test fails where they and the code differ. What stands above MARK is written by hand.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from seatrial.builders.failures import CAUSES
from seatrial.checks.contract import PlannedNodes
from seatrial.checks.suites import SuiteFile, outlines
from seatrial.checks.table import CHECKS
from seatrial.config.cluster import Cluster
from seatrial.config.fields import sections
from seatrial.nccl.causes import CAUSES as LOG_CAUSES
from seatrial.nccl.causes import XIDS, Cause
from seatrial.report.listings import rounded
from seatrial.runs.explanations import AREAS
from seatrial.system.shipped import CLUSTER_SCHEMA

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SUITE_SCHEMA = "seatrial/checks/suites/suite.schema.json"
MARK = "<!-- From here on `make docs` writes this page, from the code. -->\n"
_PIPE = "\\|"  # within a table
_PROGRAMS = {
    "nccl-tests": "nccl-tests",
    "cuda": "CUDA, as nccl-tests, NCCL and torch name its errors",
    "nccl": "NCCL and its plugins",
    "libfabric": "libfabric",
    "torch": "torch",
    "driver": "The GPU driver",
    "nvidia-smi": "nvidia-smi and NVML",
    "kernel": "The kernel",
    "container": "Container runtimes",
    "pyxis": "pyxis and enroot",
    "slurm": "Slurm",
    "mpirun": "mpirun and PMIx",
    "ssh": "ssh",
    "loader": "The dynamic linker",
    "shell": "The shell",
}
_FILES_OWN = {"Fields": {"name": "the file's name"}}  # what the reader of the file fills in
_OF_AREA = {  # of the runbook
    "The run": "`seatrial doctor` says what this machine lacks beforehand. In a run that is `not_run`.",
    "Image": "A build that failed is `inconclusive`; a builder or an image that does not exist is `not_run`. The whole"
    " output is in `logs/image-build.log`; [causes of failed builds](log-causes.md#image-builds) lists what is known.",
    "Kubernetes": "`seatrial doctor CLUSTER` says beforehand what the cluster lacks; in a run that is `not_run`. A"
    " launch that failed is `inconclusive`, because there were no nodes to measure. Nodes that somebody took away are"
    " not blamed. While a run waits in a queue, its log has the same words; they change as the cluster does."
    " `queue_timeout_s` limits the wait.",
    "Nodes": "`fail`. Nodes that are blamed are taken out, and the others are measured.",
    "Connectivity": "`fail`. Nodes that are blamed are taken out, and the others are measured. A node with a slow"
    " network is named by `tcp_egress` or `tcp_ingress`: check `ethtool` and its switch port.",
    "Collectives": "`fail`, unless the meaning says otherwise. Where the log names a cause, the reason begins with it:"
    " [causes in logs](log-causes.md).",
    "Numbers": "`degraded` is worse than the limit, `fail` twice as bad or below a published floor: [how verdicts are"
    " made](verdicts.md). `seatrial compare GOOD BAD` shows what else changed. Those of `seatrial judge` are"
    " `inconclusive`, unless the meaning says otherwise.",
}


def pages() -> dict[Path, str]:
    """Each made page, as it should be."""
    made = {
        "cluster-file.md": "\n".join(_reference(Cluster)),
        "suite-file.md": "\n".join([*_reference(SuiteFile), *_suites()]),
        "checks.md": "\n".join(_checks()),
        "log-causes.md": "\n".join(_causes()),
        "runbook.md": "\n".join(_codes()),
    }
    schemas = {ROOT / CLUSTER_SCHEMA: _json_schema(Cluster), ROOT / SUITE_SCHEMA: _json_schema(SuiteFile)}
    written = {DOCS / name: (DOCS / name).read_text().partition(MARK)[0] + MARK + text for name, text in made.items()}
    return {**written, **schemas}


def _json_schema(model: type[BaseModel]) -> str:
    """What an editor checks a file by: the name may be left out, since the file has one."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
    return json.dumps({**schema, "required": [name for name in schema["required"] if name != "name"]}, indent=1) + "\n"


def _suites() -> Iterator[str]:
    """Return the durations of the shipped suites by nodes."""
    yield from ("## How long the suites take", "")
    yield "About, and by their timeouts at most, without bringing nodes up and without repeats of doubtful numbers."
    yield from ("", "| suite | nodes | about | at most |", "|---|---|---|---|")
    for gpus in (8, 0):
        for planned in outlines(PlannedNodes(4, max(1, gpus), bool(gpus))):
            yield _row(f"`{planned.suite}`", planned.nodes.words, rounded(planned.about_s), rounded(planned.most_s))
    yield ""


def _checks() -> Iterator[str]:
    """A section for each check of the table, in the order in which a run tries them."""
    for kind in CHECKS:
        yield from (f"## {kind.name}", "", _first_paragraph(kind.section.__doc__ or ""), "")
        yield from (f"- Runs after `{kind.after}`.", f"- In the suite file: [{kind.name}](suite-file.md#{kind.name}).")
        for nodes, gpus in (("with GPUs", True), ("without GPUs", False)):
            if needs := kind.needs(gpus):
                yield f"- Nodes {nodes} need " + ", ".join(f"{need.name} ({need.remedy})" for need in needs) + "."
        if kind.least_ranks > 1:
            yield f"- Needs at least {kind.least_ranks} ranks, on two nodes where the cluster has two."
        if kind.repeat:
            yield "- Suspicious numbers are measured again before they count."
        yield from ("", "| metric | unit | meaning |", "|---|---|---|") if kind.metrics else ()
        yield from (_row(f"`{name}`", m.unit or "-", m.meaning) for name, m in kind.metrics.items())
        yield ""


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def _reference(model: type[BaseModel]) -> Iterator[str]:
    """A table for the model and for each model in it, in the order in which they are named."""
    for section in sections(model, _link):
        yield from (f"## {section.title}", "", _first_paragraph(section.purpose), "")
        yield from ("| field | legal | default | meaning |", "|---|---|---|---|")
        for field in section.fields:
            default = field.default or _FILES_OWN.get(section.title, {}).get(field.name, "**required**")
            yield _row(f"`{field.name}`", field.legal, default, field.meaning)
        yield ""


def _link(title: str) -> str:
    return f"[{title}](#{''.join(c for c in title.lower().replace(' ', '-') if c.isalnum() or c in '-_')})"


def _causes() -> Iterator[str]:
    """One table for each program, in the order in which its causes are looked for."""
    for program, title in _PROGRAMS.items():
        yield from (f"## {title}", "", "| reason | code | who | next step |", "|---|---|---|---|")
        rows = [cause for cause in LOG_CAUSES if cause.program == program]
        yield from dict.fromkeys(_row(f"`{row.cause}`", f"`{row.code}`", row.who, _step(row)) for row in rows)
        yield ""
    yield from ("## Image builds", "", "| cause | next step |", "|---|---|")
    yield from (_row(f"`{cause.name}`", cause.next_step) for cause in CAUSES)
    yield from ("", "## The driver's Xid and SXid", "", "| number | meaning | code | next step |", "|---|---|---|---|")
    yield from (_row(_number(row), row.cause, f"`{row.code}`", _step(row)) for row in XIDS)


def _number(row: Cause) -> str:
    """The numbers of an Xid in words: `144-150` for 14[4-9]|150."""
    numbers = [number for number in range(1000) if re.fullmatch(row.pattern, str(number))]
    kind = "Xid" if row.program == "xid" else "SXid"
    if len(numbers) == 1000:
        return f"any other {kind}" if kind == "Xid" else f"any {kind}"
    return f"{kind} {numbers[0]}" + (f"-{numbers[-1]}" if len(numbers) > 1 else "")


def _codes() -> Iterator[str]:
    """One heading for each code of a reason, so that its anchor is the code."""
    for area, reasons in AREAS.items():
        if area == "Logs":  # docs/log-causes.md has them
            continue
        yield from (f"## {area}", "", *((_OF_AREA[area], "") if area in _OF_AREA else ()))
        for code, reason in reasons.items():
            yield from (
                f"### {code}",
                "",
                f"`{reason.pattern}`",
                "",
                reason.meaning,
                *((f"Next step: {reason.next_step}",) if reason.next_step else ()),
                *((f"In earlier versions: `{'`, `'.join(reason.formerly)}`.",) if reason.formerly else ()),
                "",
            )


_SEVERITIES = {
    "fatal": "",
    "status": "; it names no cause by itself",
    "follows": "; it follows from another cause",
    "note": "; a run survives it",
}


def _step(cause: Cause) -> str:
    return cause.next_step + _SEVERITIES[cause.severity]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', _PIPE) for cell in cells)} |"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
