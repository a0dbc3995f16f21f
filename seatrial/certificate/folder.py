"""The folder of a certificate: write it with its evidence, and check that it follows from that
evidence.
"""

import json
import os
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from seatrial import __version__
from seatrial.bundle.pack import seal, stage
from seatrial.certificate import CERTIFICATE, EVIDENCE, PAGE, PAPER, REQUIREMENTS
from seatrial.certificate.decide import EvidenceRun
from seatrial.certificate.document import SCHEMA, as_json, as_page, document
from seatrial.certificate.requirements import load
from seatrial.model.errors import InputError, os_errors_named
from seatrial.model.result import Document, now
from seatrial.runs.load import load_result
from seatrial.system.private import check_parents, private_folder, read_opener
from seatrial.text.redact import Secrets

MAX_RUNS = 100
MAX_EVIDENCE = 100_000_000  # bytes of all run.json: a run of 1,000 nodes takes 6 MB
_TOO_MUCH = (
    f"all run.json together are larger than {MAX_EVIDENCE:,} bytes; make a certificate of "
    "fewer runs"
)
MAX_BYTES = 16 << 20  # of certificate.json and of its page: 500 requirements take 1 MB


def write(
    runs: Sequence[Path],
    requirements: Path,
    target: Path,
    key: Path | None = None,
    *,
    paper: bool = False,
) -> Document:
    """Write the certificate of the runs' folders into the new folder `target`; return the content
    of certificate.json.

    It is signed with `key` if given, and has a PDF with `paper`. Secrets are removed, as in
    bundles. Raises InputError.
    """
    if len(runs) > MAX_RUNS:
        raise InputError(f"RUN: {len(runs)} runs are given; legal: at most {MAX_RUNS}")
    load(requirements)  # its errors name the file as it was given
    with os_errors_named(f"--out {target}: cannot be written"):
        check_parents(target)
        exists = os.path.lexists(target)
        if exists and not (target.is_dir() and not any(target.iterdir())):
            raise InputError(f"--out {target}: is there already; give a new or empty folder")
        parent = target.absolute().parent
        if not parent.is_dir():
            private_folder(parent)
        with tempfile.TemporaryDirectory(prefix=".seatrial-certificate-", dir=parent) as made:
            folder = Path(made) / "certificate"
            folder.mkdir(mode=0o700)
            certificate = _fill(folder, runs, requirements, key, paper=paper)
            folder.rename(target)
    return certificate


def _fill(
    folder: Path, runs: Sequence[Path], requirements: Path, key: Path | None, *, paper: bool
) -> Document:
    """Copy the evidence, decide by the copies, and seal everything."""
    secrets = Secrets.of(os.environ)
    stage(requirements.resolve(), folder / REQUIREMENTS, secrets)
    names = [REQUIREMENTS, *_copy_evidence(folder, runs, secrets)]
    issued = now().replace(microsecond=0)
    certificate = _certificate(folder, len(runs), issued)
    text = as_json(certificate)
    page = as_page(certificate)
    (folder / CERTIFICATE).write_text(text, encoding="utf-8")
    (folder / PAGE).write_text(page, encoding="utf-8")
    names += [CERTIFICATE, PAGE]
    if paper:
        from seatrial.report.paper import pdf_of

        pdf = pdf_of(page)
        (folder / PAPER).write_bytes(pdf)
        names.append(PAPER)
    names += seal(folder, names, key)
    for name in names:
        (folder / name).chmod(0o600)
    return certificate


def _copy_evidence(folder: Path, runs: Sequence[Path], secrets: Secrets) -> list[str]:
    """Copy run.json of every run; return the names of the copies. Raises InputError."""
    names = []
    left = MAX_EVIDENCE
    for number, run in enumerate(runs, 1):
        name = _evidence(number)
        copy = folder / name
        file = run
        if run.is_dir():
            file = run / "run.json"
        private_folder(copy.parent)
        with os_errors_named(f"RUN {file}: cannot be copied"):
            left -= file.stat().st_size
            if left < 0:
                raise InputError(f"RUN {file}: {_TOO_MUCH}")
            stage(file, copy, secrets)
        names.append(name)
    return names


def follows(folder: Path) -> str:
    """Return why the certificate in `folder` does not follow from its evidence; "" if it does.

    Its files must be unchanged by their manifest.
    """
    try:
        text = _read(folder / CERTIFICATE)
        page = _read(folder / PAGE)
        recorded = json.loads(text)
        is_certificate = isinstance(recorded, dict) and recorded.get("schema") == SCHEMA
        if not is_certificate:
            return f"{CERTIFICATE}: is no certificate of schema {SCHEMA}"
        written = str(recorded.get("issued"))
        issued = datetime.fromisoformat(written)
        if issued.tzinfo is None:
            return f"{CERTIFICATE}: issued: must have an offset from UTC"
        listed = recorded.get("runs")
        count = len(listed) if isinstance(listed, list) else 0
        if not 1 <= count <= MAX_RUNS:
            return f"{CERTIFICATE}: runs: must be a list of 1 to {MAX_RUNS} runs"
        expected = _certificate(folder, count, issued)
    except (InputError, ValueError, OSError, RecursionError) as error:
        return f"{CERTIFICATE}: cannot be checked: {error}"
    return _mismatch(recorded, expected, text, page)


def _mismatch(recorded: Document, expected: Document, text: str, page: str) -> str:
    """Name the file that differs from what the evidence yields, and why; "" if none does."""
    problem = _difference(recorded, expected)
    if problem:
        return f"{CERTIFICATE}: {problem}"
    if text != as_json(expected):
        return f"{CERTIFICATE}: is written otherwise than seatrial writes it"
    is_ours = recorded.get("seatrial") == __version__  # other versions have pages of their own
    if is_ours and page != as_page(expected):
        return f"{PAGE}: does not show what {CERTIFICATE} says"
    return ""


def _certificate(folder: Path, count: int, issued: datetime) -> Document:
    """Decide anew from the files in the folder of a certificate. Raises InputError."""
    numbers = range(1, count + 1)
    names = list(map(_evidence, numbers))
    files = [folder / name for name in names]
    size = sum(file.stat().st_size for file in files)
    if size > MAX_EVIDENCE:
        raise InputError(f"{EVIDENCE}: {_TOO_MUCH}")
    results = list(map(load_result, files))
    ids = [result.run_id for result in results]
    for run_id in ids:
        if ids.count(run_id) > 1:
            raise InputError(f"RUN {run_id}: is given twice; give each run once")
    last = max(results, key=lambda result: result.finished)
    if issued < last.finished:
        time = issued.isoformat()
        raise InputError(
            f"RUN {last.run_id}: ended after the certificate's time {time}; check the clock"
        )
    requirements = load(folder / REQUIREMENTS)
    runs = list(map(EvidenceRun, names, results))
    return document(requirements, runs, issued)


def _difference(recorded: Document, expected: Document) -> str:
    """Name the first field in which the certificate differs from what its evidence shows."""
    if recorded.get("seatrial") != __version__:
        # The version whose rules decided, which may differ from this one
        expected["seatrial"] = str(recorded.get("seatrial"))
    for field, value in expected.items():
        if field == "requirements":
            continue
        if recorded.get(field) != value:
            return f"{field} does not follow from its evidence"
    rows = recorded.get("requirements")
    derived_rows = expected["requirements"]
    if not isinstance(rows, list) or len(rows) != len(derived_rows):
        return "requirements are not those of its requirements.yaml"
    for row, derived in zip(rows, derived_rows, strict=True):
        if not isinstance(row, dict):
            return "requirements: must be a list of objects"
        for name in (*derived, *row):
            if row.get(name) != derived.get(name):
                return f"{derived['id']}: {name} does not follow from its evidence"
    return ""


def _evidence(number: int) -> str:
    return f"{EVIDENCE}/{number}/run.json"


def _read(path: Path) -> str:
    """Read a file of a certificate. Raises OSError and ValueError."""
    with open(path, "rb", opener=read_opener) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path.name} is larger than {MAX_BYTES:,} bytes")
    return content.decode()
