"""The pages of docs/ that are made from the code: what cluster and suite files may say, the checks,
and the codes of reasons; and the JSON Schemas of both files.

`make docs` writes them anew; a test fails where they and the code differ. What stands above MARK is
written by hand.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from seatrial.causes.table import CAUSES as LOG_CAUSES
from seatrial.checks.contract import PlannedNodes
from seatrial.checks.metrics import Metric
from seatrial.checks.suites import SuiteFile, outlines
from seatrial.checks.table import CHECKS
from seatrial.config.cluster import Cluster
from seatrial.config.fields import Field, Section, sections
from seatrial.model.explanations import Explanation
from seatrial.readers.table import READERS
from seatrial.report.listings import rounded
from seatrial.runs.explanations import AREAS
from seatrial.system.shipped import CLUSTER_SCHEMA

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SUITE_SCHEMA = "seatrial/checks/suites/suite.schema.json"
MARK = "<!-- From here on `make docs` writes this page, from the code. -->\n"
_NOT_SHOWN = ("unset", "none", "its fields' own")  # defaults that say nothing
_CHECK_NAMES = frozenset(kind.name for kind in CHECKS)
_TOOLS = "<!-- From here to the next mark `make docs` writes the list, from the code. -->"
_TOOLS_END = "<!-- End of the list. -->"
_PIPE = "\\|"  # within a table
_PAGE = re.compile(r"\bdocs/([a-z-]{1,40})\.md")
# All that a field takes
_ONE_LINK = re.compile(r"(?:text or |list of |mapping of names to )*\[[^]]*\]\(([^)]*)\)")
_RECORDED = "; recorded, not judged"  # at the end of a metric's meaning
_FILES_OWN = {"Fields": {"name": "the file's name"}}  # what the reader of the file fills in
_OF_AREA = {  # of the runbook
    "The run": "`not_run`, mostly: `seatrial doctor` lists it beforehand.",
    "Image": "A build that failed is `inconclusive`: its output is `logs/image-build.log`. What does not exist is"
    " `not_run`.",
    "Kubernetes": (
        "`not_run` or `inconclusive`; no node is blamed. `seatrial doctor CLUSTER` lists most "
        "beforehand."
    ),
    "Nodes": "`fail`. Nodes that are blamed are taken out, and the others are measured.",
    "Connectivity": "`fail`. Nodes that are blamed are taken out, and the others are measured.",
    "Collectives": "`fail`, unless the log names another cause: the reason then begins with that.",
    "Logs": (
        "What nccl-tests, NCCL, torch, ssh, mpirun, Slurm, containers, the driver and the "
        "kernel print."
    ),
    "Numbers": (
        "`degraded` is below the limit, `fail` below half of it: [how verdicts are "
        "made](verdicts.md)."
    ),
}


def pages() -> dict[Path, str]:
    """Return each made page, as it should be."""
    made = {
        "cluster-file.md": "\n".join(_reference(Cluster)),
        "suite-file.md": "\n".join([*_reference(SuiteFile), *_suites()]),
        "checks.md": "\n".join(_checks()),
        "runbook.md": "\n".join(_codes()),
    }
    schemas = {
        ROOT / CLUSTER_SCHEMA: _json_schema(Cluster),
        ROOT / SUITE_SCHEMA: _json_schema(SuiteFile),
    }
    written = {
        DOCS / name: (DOCS / name).read_text().partition(MARK)[0] + MARK + text
        for name, text in made.items()
    }
    logs = DOCS / "judging-logs.md"
    before, mark, rest = logs.read_text().partition(f"{_TOOLS}\n")
    tools = "\n".join(_tools())
    return {
        **written,
        **schemas,
        logs: f"{before}{mark}{tools}\n{_TOOLS_END}{rest.partition(_TOOLS_END)[2]}",
    }


def _tools() -> Iterator[str]:
    """Yield the outputs that `judge` reads beside nccl-tests', and what it finds in them."""
    for reader in READERS:
        if reader.prints:
            yield f"- {reader.prints}: {reader.finds}"


def _json_schema(model: type[BaseModel]) -> str:
    """Return what an editor checks a file by: the name may be left out, since the file has one."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **model.model_json_schema(),
    }
    return (
        json.dumps(
            {**schema, "required": [name for name in schema["required"] if name != "name"]},
            indent=1,
        )
        + "\n"
    )


def _suites() -> Iterator[str]:
    """Return the durations of the shipped suites by nodes."""
    yield from ("## How long the suites take", "")
    yield (
        "On 4 nodes with 8 GPUs, without bringing them up and without repeats of doubtful numbers."
    )
    yield from ("", "| suite | about | at most, by timeouts |", "|---|---|---|")

    for planned in outlines(PlannedNodes(4, 8, True)):
        yield _row(f"`{planned.suite}`", rounded(planned.about_s), rounded(planned.most_s))
    yield ""


def _checks() -> Iterator[str]:
    """Yield a section for each check of the table, in the order in which a run tries them."""
    for kind in CHECKS:
        purpose = _first_paragraph(kind.section.__doc__ or "")
        yield from (f"## {kind.name}", "", f"{purpose} [Settings](suite-file.md#{kind.name}).", "")
        if kind.after != "connectivity":
            yield f"- Runs after `{kind.after}`."
        needs = {nodes: kind.needs(nodes == "with GPUs") for nodes in ("with GPUs", "without GPUs")}
        of_all = len(set(needs.values())) == 1
        for nodes, some in {"": needs["with GPUs"]}.items() if of_all else needs.items():
            if some:
                named = ", ".join(need.name for need in some)
                yield f"- Nodes {nodes} need {named}." if nodes else f"- Needs {named}."
        if kind.least_ranks > 1:
            yield (
                f"- Needs at least {kind.least_ranks} ranks, on two nodes where the cluster "
                "has two."
            )
        yield from _metrics(kind.metrics)
        yield ""


def _metrics(metrics: Mapping[str, Metric]) -> Iterator[str]:
    """Yield a line for each metric, those that are judged first."""
    judged = [name for name, metric in metrics.items() if not metric.meaning.endswith(_RECORDED)]
    recorded = [name for name in metrics if name not in judged]
    for title, names in (("Metrics:", judged), ("Recorded, not judged:", recorded)):
        if names:
            yield from ("", title, "")
        for name in names:
            unit = f" ({metrics[name].unit})" if metrics[name].unit else ""
            yield f"- `{name}`{unit}: {metrics[name].meaning.removesuffix(_RECORDED)}"


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def _reference(model: type[BaseModel]) -> Iterator[str]:
    """Yield a list of the model's fields and for each model in it.

    Fields that an earlier section has are named beside it.
    """
    before: dict[Field, Section] = {}
    for section in sections(model, _link):
        yield from (f"## {section.title}", "", _purpose(section), "")
        new = [field for field in section.fields if field not in before]
        own = [
            field
            for field in new
            if f", {field.name} {field.legal.strip('`')}" not in section.title
        ]
        for field in own:
            default = field.default or _FILES_OWN.get(section.title, {}).get(
                field.name, "**required**"
            )
            shown = "" if default in _NOT_SHOWN else f" ({default})"
            only = _ONE_LINK.fullmatch(field.legal)
            name = f"[`{field.name}`]({only[1]})" if only else f"`{field.name}`"
            meaning = _linked(field.meaning) if only else _meaning(field)
            # By the section's purpose
            is_evident = only and field.legal.startswith("[") and field.name not in _CHECK_NAMES
            yield f"- {name}{shown}" if is_evident else f"- {name}{shown}: {meaning}"
        for earlier in dict.fromkeys(
            before[field].title for field in section.fields if field in before
        ):
            there = [field for field, home in before.items() if home.title == earlier]
            yield from ("", f"As in {_link(earlier)}{_which(section.fields, there)}.")
        before |= dict.fromkeys(own, section)
        yield ""


def _purpose(section: Section) -> str:
    """Return what the section is for; what a check does is on the page of checks."""
    if section.title in _CHECK_NAMES:
        return f"[What it does](checks.md#{section.title})."
    return _linked(_first_paragraph(section.purpose))


def _which(fields: Sequence[Field], there: Sequence[Field]) -> str:
    """Return which fields of an earlier section a section has too, or those that it lacks if they
    are fewer.
    """
    shared = [f"`{field.name}`" for field in there if field in fields]
    lacking = [f"`{field.name}`" for field in there if field not in fields]
    if not lacking:
        return ""
    return (
        f", without {', '.join(lacking)}"
        if 2 * len(lacking) < len(shared)
        else f": {', '.join(shared)}"
    )


def _meaning(field: Field) -> str:
    """Return what it means, with its values or the sections of its models, where they are few.

    `explain` has the bounds.
    """
    values = "" if "text like" in field.legal or field.legal == "`true`, `false`" else field.legal
    if "](" in values:
        values = values.removeprefix("text or ").removeprefix("list of ").replace(" or [", ", [")
    meaning = _linked(field.meaning)
    return f"{meaning}: {values}" if "`" in values or "](" in values else meaning


def _linked(text: str) -> str:
    """Return the text with a link in place of each page that it names, if there is one."""
    return _PAGE.sub(
        lambda page: f"[{page[1]}]({page[1]}.md)" if (DOCS / f"{page[1]}.md").exists() else page[0],
        text,
    )


def _link(title: str) -> str:
    label = re.sub(r"\b(?:kind|builder|of) ", "", title.partition(", ")[2] or title)
    return f"[{label}](#{''.join(c for c in title.lower().replace(' ', '-') if c.isalnum() or c in '-_')})"


def _codes() -> Iterator[str]:
    """Yield a line for each code of a reason that has a next step."""
    texts = {cause.code: cause.cause for cause in reversed(LOG_CAUSES)}
    for area, reasons in AREAS.items():
        yield from (f"## {area}", "", *((_OF_AREA[area], "") if area in _OF_AREA else ()))
        yield from (
            f"- `{code}`: {texts.get(code) or _sentence_of(reason)}"
            for code, reason in reasons.items()
            if reason.next_step
        )
        yield ""


def _sentence_of(reason: Explanation) -> str:
    """Return the sentence of a reason, or its meaning where the sentence is all values."""
    return reason.pattern if sum(map(str.isalpha, reason.pattern)) > 5 else reason.meaning


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', _PIPE) for cell in cells)} |"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
