"""`launch: srun`: each measurement is a step of the job, with one task per rank, started on the login node."""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from seatrial.config.cluster import Cluster
from seatrial.model.errors import SeatrialError
from seatrial.model.testbed import RankProcess, Testbed
from seatrial.platforms.slurm.config import SlurmPlatform
from seatrial.platforms.slurm.login import Login
from seatrial.platforms.slurm.script import container_env, container_of, load_modules

_NAME = "seatrial-ranks"  # of the steps
_GRACE_S = 10.0  # the supervisor asks for 3 s, forces for 3 s
_GONE_S = 15.0
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class SrunLauncher:
    """Ranks of a job's steps, in `image` where it is not empty.

    `folder`, a full path, holds the probes and is on every node; `node_folder` is that of the node's sshd.
    """

    login: Login
    cluster: Cluster
    settings: SlurmPlatform
    job_id: str
    image: str
    folder: str
    node_folder: str

    @property
    def python(self) -> str:
        """That of the login node: the image's is not there."""
        return self.settings.python if self.settings.runtime == "none" else "python3"

    def argv(self, testbed: Testbed, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """Slurm numbers the ranks along its own list of nodes, in whose order the testbed has them."""
        bind = shlex.quote(self.folder)
        container = container_of(self.cluster, self.image, env, [f"{bind}:{bind}"])
        return [
            *("srun", f"--jobid={self.job_id}", f"--job-name={_NAME}", "--overlap", "--input=none"),
            f"--nodes={len(testbed.nodes)}",
            f"--nodelist={','.join(node.name for node in testbed.nodes)}",
            f"--ntasks={testbed.world_size}",
            f"--ntasks-per-node={self.cluster.slots}",
            *(("--gpus-per-task=1",) if self._has_a_gpu_each else ()),
            *("--cpu-bind=none", "--mem=0", f"--mpi={self.settings.mpi_plugin}", "--kill-on-bad-exit=1"),
            *(("--label",) if testbed.tag_output else ()),
            *shlex.split(" ".join((*container.options, *container.command))),
            *argv,
        ]

    @property
    def _has_a_gpu_each(self) -> bool:
        return 0 < self.cluster.gpus == self.cluster.slots

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """nccl-tests chooses a GPU by the rank on its node unless it is told; each rank sees one, number 0. Slurm 22.05
        does not tell ranks that they have one each.

        What ranks leave in their temporary folder goes with that of sshd; a container of Pyxis has a /tmp of its own.
        """
        device = {"NCCL_TESTS_DEVICE": "0", "SLURM_GPUS_PER_TASK": "1"} if self._has_a_gpu_each else {}
        temporary = {} if self.settings.runtime == "pyxis" else {"TMPDIR": f"{self.node_folder}/tmp"}
        return container_env(self.settings, {**device, **temporary, **env})

    @contextmanager
    def started(self, testbed: Testbed, command: str) -> Iterator[RankProcess]:
        process = self.login.start("\n".join(["set -eu", *load_modules(self.settings), f"exec {command}"]))
        try:
            yield process
        finally:
            process.close(_GRACE_S)
            with suppress(SeatrialError):  # the job itself ends at teardown
                self._end_steps()

    def _end_steps(self) -> None:
        """An srun that was killed leaves its tasks, which would run beside the next measurement."""
        deadline = time.monotonic() + _GONE_S
        while (steps := self._steps()) and time.monotonic() < deadline:
            self.login.run(["scancel", "--signal=KILL", *steps])
            time.sleep(_PAUSE_S)

    def _steps(self) -> list[str]:
        printed = self.login.run(["squeue", "--steps", "--noheader", f"--jobs={self.job_id}", "--format=%i|%j"])
        named = (line.strip().partition("|") for line in printed.splitlines())
        return [step for step, _, name in named if name == _NAME]
