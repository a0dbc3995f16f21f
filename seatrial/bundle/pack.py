"""Pack a run for whoever it is handed to. The same files make the same bytes."""

import gzip
import hashlib
import os
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from seatrial.bundle import HOW_TO, MANIFEST, NAMESPACE, SIGNATURE
from seatrial.bundle.manifest import fits, manifest_text
from seatrial.bundle.signature import sign
from seatrial.config.run import RESULT, log_files
from seatrial.model.errors import InputError
from seatrial.model.result import RunResult
from seatrial.system.atomic import atomic_write
from seatrial.system.private import read_opener
from seatrial.text.redact import Secrets

_EXPLAINED = f"""\
This is run {{run_id}} of {{cluster}}. Its report is report.html; logs/ is what every command printed.

To verify that the files are what they were, in this folder:

    sha256sum -c {MANIFEST}

If it is signed ({SIGNATURE}), and signer.pub is the public key that you have from the signer by another way:

    echo "signer $(cat signer.pub)" > allowed_signers
    ssh-keygen -Y verify -f allowed_signers -I signer -n {NAMESPACE} -s {SIGNATURE} < {MANIFEST}

The same in one step, before it is unpacked:  seatrial verify BUNDLE --key signer.pub
"""


def pack(result: RunResult, folder: Path, target: Path, key: Path | None = None) -> list[str]:
    """Write the bundle of the run in `folder` to `target`, signed with `key` if given; the names in its manifest.

    Secrets are taken out, as from what is uploaded. Raises InputError.
    """
    sources = _sources(folder)
    secrets = Secrets.of(os.environ)
    try:
        with tempfile.TemporaryDirectory(prefix="seatrial-bundle-") as staging:
            staged = {name: _stage(path, Path(staging) / name, secrets) for name, path in sources.items()}
            explained = Path(staging) / HOW_TO
            explained.write_text(_EXPLAINED.format(run_id=result.run_id, cluster=result.cluster), encoding="utf-8")
            staged[HOW_TO] = explained
            names = _seal(Path(staging), staged, key)
            _write(target, f"seatrial-{result.run_id}", Path(staging), names, int(result.finished.timestamp()))
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from error
    return sorted(staged)


def _sources(folder: Path) -> dict[str, Path]:
    """What is handed over, by its name in the bundle. Links may lead anywhere: none."""
    result = (path for name in RESULT if (path := folder / name).is_file() and not path.is_symlink())
    files = {path.relative_to(folder).as_posix(): path for path in (*result, *log_files(folder))}
    for name in files:
        if not fits(name):
            raise InputError(f"{folder}: {name!r}: a bundle cannot hold such a name; rename the file")
    return files


def _stage(source: Path, target: Path, secrets: Secrets) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        open(source, encoding="utf-8", errors="surrogateescape", newline="", opener=read_opener) as lines,
        target.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        file.writelines(secrets.out_of(lines))
    return target


def _seal(staging: Path, staged: Mapping[str, Path], key: Path | None) -> list[str]:
    """Manifest and signature; the names of all files, those two first, so that a reader knows what to expect."""
    manifest = staging / MANIFEST
    manifest.write_text(manifest_text({name: _digest(path) for name, path in staged.items()}), encoding="utf-8")
    if key is None:
        return [MANIFEST, *sorted(staged)]
    sign(manifest, key)
    return [MANIFEST, SIGNATURE, *sorted(staged)]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(target: Path, top: str, staging: Path, names: Sequence[str], mtime: int) -> None:
    """All of it or nothing."""
    with atomic_write(target) as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as zipped:
        _tar(zipped, top, staging, names, mtime)


def _tar(stream: IO[bytes] | gzip.GzipFile, top: str, staging: Path, names: Sequence[str], mtime: int) -> None:
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mtime, member.mode = (staging / name).stat().st_size, mtime, 0o644
            with (staging / name).open("rb") as file:
                archive.addfile(member, file)
