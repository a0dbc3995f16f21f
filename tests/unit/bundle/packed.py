"""A run's folder, bundles of it, and archives that somebody has changed."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner, Result

from seatrial.cli.app import app
from seatrial.tasks.record import record
from tests import samples

Members = dict[str, tuple[tarfile.TarInfo, bytes]]
TOP = "seatrial-20260314-0200-h4x9t"


def leave_a_run(folder: Path) -> None:
    from seatrial.checks.suites import load_suite
    from seatrial.config.cluster import Cluster
    from seatrial.config.run import Run

    cluster = Cluster.model_validate({"name": "local", "nodes": 4, "platform": {"kind": "local"}})
    record(
        samples.healthy_local(), Run("20260314-0200-h4x9t", cluster, load_suite("quick"), folder)
    )
    (folder / "logs" / "nodes").mkdir(parents=True)
    (folder / "logs" / "all_reduce.log").write_bytes(b"# nccl-tests\n\xff not UTF-8\r\n")
    (folder / "logs" / "nodes" / "node-0.log").write_text("sshd\n")


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def verify(bundle: Path, *options: object) -> tuple[int, str]:
    """Exit status and what was said; bad input is what `main` makes of it."""
    result = run("verify", bundle, *options)
    if result.exception and not isinstance(result.exception, SystemExit):
        return 2, str(result.exception)
    return result.exit_code, result.output


def tampered(bundle: Path, change: Callable[[Members], object]) -> Path:
    """The same archive with other members."""
    with tarfile.open(bundle) as archive:
        members = {
            m.name.removeprefix(f"{TOP}/"): (m, archive.extractfile(m).read())  # type: ignore[union-attr]
            for m in archive
        }
    change(members)
    target = bundle.with_name("tampered.tar.gz")
    with tarfile.open(target, "w:gz") as archive:
        for info, content in members.values():
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content))
    return target


def put(members: Members, name: str, content: bytes) -> None:
    info = members[name][0] if name in members else tarfile.TarInfo(f"{TOP}/{name}")
    members[name] = (info, content)
