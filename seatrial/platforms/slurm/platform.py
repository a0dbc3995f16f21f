"""The Slurm platform: launch, teardown and leftovers of testbeds that are one job."""

import json
import logging
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from pydantic import Field

from seatrial.checks.collectives.section import Collectives
from seatrial.checks.table import CHECKS, left_out
from seatrial.checks.training.section import Training
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.model.testbed import RankProcess, Testbed
from seatrial.platforms import Rendered
from seatrial.platforms import state as states
from seatrial.platforms.slurm import SlurmPlatform, doctor, script
from seatrial.platforms.slurm.bringup import BringUp
from seatrial.platforms.slurm.gate import close_gate, open_gate, reason_of
from seatrial.platforms.slurm.jobs import (
    Job,
    blameless_reason,
    end_jobs,
    jobs_of,
    node_addresses,
    node_names,
    restarts,
    submit,
    switches,
)
from seatrial.platforms.slurm.login import Login, RemoteLogin, login_of, rows
from seatrial.platforms.slurm.script import (
    MEASURE_SCRIPT,
    container_env,
    container_of,
    load_modules,
    measure_script,
)
from seatrial.platforms.state import NodeAddress, PlatformState, RunsWithState
from seatrial.platforms.testbed import (
    MADE_LATER,
    default_folder,
    node_script,
    nodes_of,
    testbed_of,
    write_ports,
)
from seatrial.remote.ssh import KeyPair
from seatrial.system.private import write_private
from seatrial.system.rawlog import write_log
from seatrial.text.redact import Secrets

_NAME = "seatrial-ranks"  # name of the steps
_GRACE_S = 10.0  # the supervisor terminates for 3 s, then kills for 3 s
_GONE_S = 15.0
_PAUSE_S = 0.2
log = logging.getLogger("seatrial.launch")
_KIND = "slurm"
# File of a run without a job, whose teardown needs no Slurm command
_NOT_SUBMITTED = "not-submitted"
# File with the drain reasons of nodes taken from the gate; on this machine only
_GATED = "gated"
_LOG_BYTES = 64 * 1024**2
_LABEL = re.compile(r"\s*(\d{1,5}): (.*)")


@dataclass(frozen=True, slots=True)
class SrunLauncher:
    """The launcher of `launch: srun`, which runs each measurement as a step of the job, with one
    task per rank, from the login node.

    `image` is empty without containers. `folder`, a full path on every node, has the probes;
    `node_folder` is the folder of the node's sshd.
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
        """The Python that starts the ranks; the login node's, if they run in an image."""
        if self.settings.runtime == "none":
            return self.settings.python
        return "python3"

    def argv(self, testbed: Testbed, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """Return the command line of srun.

        Ranks are numbered in Slurm's order of the nodes, which is the testbed's.
        """
        bind = shlex.quote(self.folder)
        container = container_of(self.cluster, self.image, env, [f"{bind}:{bind}"])
        return [
            "srun",
            f"--jobid={self.job_id}",
            f"--job-name={_NAME}",
            "--overlap",
            "--input=none",
            f"--nodes={len(testbed.nodes)}",
            f"--nodelist={','.join(testbed.names)}",
            f"--ntasks={testbed.world_size}",
            f"--ntasks-per-node={testbed.head.slots}",
            *(
                (f"--gpus-per-task={self.cluster.slots // testbed.head.slots}",)
                if self._has_a_gpu_each
                else ()
            ),
            "--cpu-bind=none",
            "--mem=0",
            f"--mpi={self.settings.mpi_plugin}",
            "--kill-on-bad-exit=1",
            "--label",
            *shlex.split(" ".join((*container.options, *container.command))),
            *argv,
        ]

    @property
    def _has_a_gpu_each(self) -> bool:
        """Whether each slot of a node has a GPU to itself."""
        return 0 < self.cluster.gpus == self.cluster.slots

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of ranks.

        nccl-tests chooses a GPU by local rank unless a variable is set, but each rank sees only GPU
        0, which Slurm 22.05 does not indicate. The temporary folder is removed with sshd's; Pyxis
        containers have their own.
        """
        own = {}
        if self._has_a_gpu_each:
            own = {"NCCL_TESTS_DEVICE": "0", "SLURM_GPUS_PER_TASK": "1"}
        if self.settings.runtime != "pyxis":
            own["TMPDIR"] = f"{self.node_folder}/tmp"
        return container_env(self.settings, {**own, **env})

    @contextmanager
    def started(self, testbed: Testbed, command: str) -> Iterator[RankProcess]:
        """Run the command on the login node, and kill remaining steps at the end."""
        process = self.login.start(
            "\n".join(["set -eu", *load_modules(self.settings), f"exec {command}"])
        )
        try:
            yield process
        finally:
            process.close(_GRACE_S)
            with suppress(SeatrialError):  # teardown ends the job anyway
                self._end_steps()

    def _end_steps(self) -> None:
        """Kill remaining steps, as the tasks of a killed srun would disturb the next
        measurement.
        """
        deadline = time.monotonic() + _GONE_S
        while True:
            printed = self.login.run(
                ["squeue", "--steps", "--noheader", f"--jobs={self.job_id}", "--format=%i|%j"]
            )
            steps = [step for step, name in rows(printed, 2) if name == _NAME]
            if not steps or time.monotonic() >= deadline:
                return
            self.login.run(["scancel", "--signal=KILL", *steps])
            time.sleep(_PAUSE_S)


class SlurmState(PlatformState):
    """The job, its nodes, and the folder of its ranks."""

    job_id: str = Field(pattern=r"^\d{1,10}$")
    restarts: int = Field(0, ge=0)
    user: str = Field(max_length=255)
    image: str = Field("", max_length=4096)
    workdir: str = Field(max_length=4096)


class Slurm(RunsWithState[SlurmState]):
    """Nodes as the steps of one job."""

    kind = _KIND
    state_type = SlurmState
    leaves = "the job and the keys of a run whose process is gone"

    def __init__(self, cluster: Cluster) -> None:
        assert isinstance(cluster.platform, SlurmPlatform)
        self._cluster = cluster
        self._settings = cluster.platform
        self._login = login_of(cluster.platform)

    def render(self, run: Run) -> Rendered:
        by_hand = {MEASURE_SCRIPT: measure_script(run, self._settings)}
        login = {}
        if isinstance(self._login, RemoteLogin):
            login = {"ssh_config": self._login.config()}
        files = by_hand | login | self._files(run, MADE_LATER, MADE_LATER)
        if self._settings.launch == "srun":
            return Rendered(files)
        port = run.cluster.ssh_port
        workdir = f"{default_folder(run.run_id)}/work"
        nodes = tuple(
            NodeAddress(name=name, address=name, port=port) for name in run.cluster.node_names()
        )
        state = SlurmState(host_key="", nodes=nodes, job_id="0", user="root", workdir=workdir)
        return Rendered(files, self._testbed(run.run_id, state))

    def _files(self, run: Run, run_key: KeyPair, host_key: KeyPair) -> dict[str, str]:
        """Return the scripts of the job and of its nodes, by name."""
        return {
            script.NODE_SCRIPT: node_script(run.run_id, run.cluster.ssh_port, run_key, host_key),
            script.JOB_SCRIPT: script.job_script(run, self._settings),
        }

    def launch(self, run: Run) -> Testbed:
        """Submit the job and wait until its nodes are ready.

        Raises LaunchError where the job does not start or no node gets ready, and MissingError
        where a step of the suite takes longer than the job may.
        """
        login = self._login
        if warning := check_time_limit(run, self._settings):
            log.warning("%s", warning)
        folder, run_key, host_key = states.begin(run, _KIND)
        (folder / _NOT_SUBMITTED).touch(0o600)
        there = script.run_folder(self._settings, run.run_id)
        login.shell(
            f"umask 077 && mkdir -p {shlex.quote(self._settings.folder)} && mkdir "
            f"{shlex.quote(there)}"
        )
        for name, text in self._files(run, run_key, host_key).items():
            login.write(f"{there}/{name}", text)
        if run.taken and run.taken.gated:
            reasons = {node: reason_of(login, node) for node in run.taken.gated}
            write_private(folder / _GATED, json.dumps(reasons))
            open_gate(login, run.run_id, run.taken.gated)
        job_id = self._submit(folder, f"{there}/{script.JOB_SCRIPT}")
        job, ports = BringUp(login, self._settings, run.run_id, job_id, run.cluster.nodes).wait()
        state = SlurmState(
            host_key=host_key.public,
            nodes=self._addresses(job, ports),
            job_id=job_id,
            restarts=restarts(login, job_id),
            user=login.user,
            image=run.nodes_image,
            workdir=self._workdir(run.run_id),
        )
        testbed = self._testbed(run.run_id, state)
        state.save(folder, testbed)
        write_ports(testbed, run.cluster.ssh_port, default_folder(run.run_id))
        return replace(testbed, groups=switches(login, testbed.names))

    def _submit(self, folder: Path, job_script: str) -> str:
        """Submit the job, and return its id. Raises LaunchError, or MissingError without sbatch."""
        not_submitted = folder / _NOT_SUBMITTED
        not_submitted.unlink()
        try:
            return submit(self._login, job_script)
        except MissingError:
            not_submitted.touch(0o600)
            raise

    def _workdir(self, run_id: str) -> str:
        """Return the folder of the probes; on the shared file system if the login node starts the
        ranks.
        """
        if self._settings.launch == "sshd":
            return f"{default_folder(run_id)}/work"
        there = script.run_folder(self._settings, run_id)
        if there.startswith("/"):
            return there
        home = self._login.shell("pwd").strip()
        return f"{home}/{there}"

    def _addresses(self, job: Job, ports: Mapping[int, int]) -> tuple[NodeAddress, ...]:
        """Return the addresses of the nodes in task order.

        An unknown address is replaced by the node's name, and the port of a node that is not ready
        by the usual one.
        """
        names = node_names(self._login, job.node_list)
        addresses = node_addresses(self._login, job.node_list)
        return tuple(
            NodeAddress(
                name=name,
                address=addresses.get(name, name),
                port=ports.get(task, self._cluster.ssh_port),
            )
            for task, name in enumerate(names)
        )

    def _is_up(self, run_id: str) -> bool:
        return any(job.is_up for job in jobs_of(self._login, run_id))

    def _testbed(self, run_id: str, state: SlurmState) -> Testbed:
        """Return the testbed of the nodes in `state`, which are reached through the login node."""
        launcher = None
        if self._settings.launch == "srun":
            folders = state.workdir, default_folder(run_id)
            launcher = SrunLauncher(
                self._login, self._cluster, self._settings, state.job_id, state.image, *folders
            )
        return testbed_of(
            self._cluster,
            run_id,
            nodes_of(self._cluster, state),
            user=state.user,
            key_file=self._folder(run_id) / states.KEY_FILE,
            dial=self._login.dial,
            workdir=state.workdir,
            python=self._settings.python,
            blameless_reason=lambda node: blameless_reason(
                self._login, run_id, state.job_id, state.restarts, node.name
            ),
            launcher=launcher,
        )

    def collect(self, run_id: str, folder: Path, timeout_s: float, secrets: Secrets) -> None:
        """Write the ends of the logs of the job and its nodes, redacted; `timeout_s` applies to
        each.
        """
        if not self._folder(run_id).exists():
            return  # nothing was submitted

        def text_of(name: str) -> str:
            path = shlex.quote(f"{script.run_folder(self._settings, run_id)}/{name}")
            return self._login.shell(
                f"tail -c {_LOG_BYTES} {path} 2>/dev/null || :", timeout_s=timeout_s
            )

        names = []
        for job in jobs_of(self._login, run_id):
            if job.node_list:
                names = node_names(self._login, job.node_list)
                break
        job_log = text_of(script.JOB_LOG)
        if job_log.strip():
            write_log(folder / script.JOB_LOG, job_log, secrets)
        for node, lines in _by_node(text_of(script.NODES_LOG), names).items():
            write_log(folder / "nodes" / f"{node}.log", lines, secrets)

    def teardown(self, run_id: str) -> None:
        """End the job, close the gate behind its nodes, and remove the run's folders on the login
        node and here.
        """
        folder = self._folder(run_id)
        if not (folder / _NOT_SUBMITTED).exists():
            end_jobs(self._login, run_id)
        if (folder / _GATED).exists() or not folder.exists():
            close_gate(self._login, run_id, states.read_record(folder, _GATED))
        self._login.shell(f"rm -rf -- {shlex.quote(script.run_folder(self._settings, run_id))}")
        states.remove_folder(folder)

    def missing(self) -> list[Reason]:
        return doctor.problems(self._login, self._cluster, self._settings)


platform = Slurm


def _by_node(text: str, names: list[str]) -> dict[str, str]:
    """Return the log lines by node name, with those of srun itself under `srun`."""
    lines: dict[str, list[str]] = {}
    for line in text.splitlines():
        match = _LABEL.fullmatch(line)
        task = int(match[1]) if match else -1
        name = names[task] if 0 <= task < len(names) else "srun"
        lines.setdefault(name, []).append(match[2] if match and name != "srun" else line)
    return {name: "\n".join(content) + "\n" for name, content in lines.items()}


def check_time_limit(run: Run, settings: SlurmPlatform) -> str | None:
    """Return a warning if Slurm may end the nodes before the suite and `keep_s` are over; else
    None.

    Raises MissingError if one step of the suite may take longer than the whole job: Slurm would end
        it before its own timeout, which names the cause.
    """
    needed_s = dict(_needed_s(run))
    limit = _clock(settings.time_limit_s)
    name, longest_s = max(needed_s.items(), key=lambda item: item[1], default=("", 0.0))
    if longest_s > settings.time_limit_s:
        raise MissingError.of(
            "slurm-time-limit-short",
            suite=run.suite.name,
            limit=limit,
            check=name,
            longest=_clock(longest_s),
        )
    kept_s = run.cluster.kept_s
    total_s = sum(needed_s.values()) + kept_s
    if total_s <= settings.time_limit_s:
        return None
    kept = f" and keep_s ({_clock(kept_s)})" if kept_s else ""
    return (
        f"the timeouts of suite {run.suite.name}{kept} add up to {_clock(total_s)}, and "
        f"time_limit is {limit}:"
        " Slurm ends the nodes of a run that takes longer"
    )


def _needed_s(run: Run) -> Iterator[tuple[str, float]]:
    """Yield the name and the timeout in seconds of each check and of each sweep."""
    for kind in (kind for kind in CHECKS if not left_out(kind, run)):
        section = run.suite.section(kind.section)
        timeout_s = float(getattr(section, "timeout_s", 0))
        if isinstance(section, Collectives):
            cluster = run.cluster
            planned = section.sweeps(
                nodes=cluster.nodes, slots=cluster.slots, gpus=bool(cluster.gpus)
            )
            yield from ((sweep.label, timeout_s) for sweep in planned)
        elif section is not None:
            yield kind.name, timeout_s
        if isinstance(section, Training) and section.all_reduce_rounds:
            yield "all_reduce by torch", timeout_s


def _clock(seconds: float) -> str:
    """Format seconds as H:MM:SS, such as 1:30:00."""
    return str(timedelta(seconds=round(seconds)))
