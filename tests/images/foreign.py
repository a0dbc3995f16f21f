"""Images that are not ours: Debian with a few packages and a stand-in for nccl-tests."""

from pathlib import Path

from tests.images import lane
from tests.unit.collectives.fake_mpirun import GPU_SIZES, table

INSTALL = "apt-get update -qq && apt-get install -y -qq --no-install-recommends"


def build(folder: Path, packages: str) -> str:
    """Build an image of Debian with those packages and a command of its own, which is not to be
    run.

    Its all_reduce_perf is a stand-in: rank 0 prints the table of two ranks.
    """
    (folder / "table").write_text("\n".join(table(ranks=2, sizes=GPU_SIZES)) + "\n")
    (folder / "all_reduce_perf").write_text(
        '#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" != 0 ] || cat /table\n'
    )
    (folder / "all_reduce_perf").chmod(0o755)
    files = "COPY table /\nCOPY all_reduce_perf /usr/local/bin/\n"
    text = (
        f'FROM {lane.base()}\nRUN {INSTALL} {packages}\n{files}ENTRYPOINT ["false"]\nCMD '
        '["never"]\n'
    )
    return lane.build_text("foreign", text, folder)
