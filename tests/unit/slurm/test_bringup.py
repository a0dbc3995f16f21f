"""The life of a job, by what Slurm's programs print, and the log of its steps."""

from collections.abc import Sequence

import pytest

from seatrial.config.cluster import Cluster
from seatrial.model.errors import LaunchError, MissingError
from seatrial.model.reason import Reason, parts_of
from seatrial.platforms.commands import Finished
from seatrial.platforms.slurm import SlurmPlatform, bringup, doctor, jobs
from seatrial.platforms.slurm.login import CommandError, Login

LONG, SHORT = 3600, 0.001


class Answers(Login):
    """A login where each program prints the next of its answers, the last one again and again."""

    def __init__(self, **answers: str | Sequence[str]) -> None:
        self._answers = {
            name: [text] if isinstance(text, str) else list(text) for name, text in answers.items()
        }
        self.calls: list[str] = []

    def _finished(self, argv: Sequence[str], stdin: bytes, timeout_s: float) -> Finished:
        self.calls.append(" ".join(argv))
        program = "restarts" if "--Format=RestartCnt:10" in argv else argv[0]
        if program not in self._answers:
            return Finished(127, "", f"{program}: not found")
        left = self._answers[program]
        text = left.pop(0) if len(left) > 1 else left[0]
        return Finished(1, "", text) if text.startswith(f"{program}: ") else Finished(0, text, "")


def codes(reason: Reason | None) -> list[str | None]:
    """The codes of the parts of a reason."""
    return [part.code for part in parts_of(reason)] if reason else []


READY = "0: seatrial-node: ready 222\n"
BOTH = f"{READY}1: seatrial-node: ready 223\n"
FAILED = "1: seatrial-node: failed: port 222 is in use\n"
UP = "7|RUNNING|n[1-2]|None"
WAITS = "7|PENDING||Resources"


@pytest.mark.parametrize(
    ("squeue", "log", "queue_s", "start_s", "expected"),
    [
        ([WAITS, UP, UP], ["", BOTH], LONG, LONG, {0: 222, 1: 223}),
        (["7|CONFIGURING|n[1-2]|None", UP], BOTH, LONG, SHORT, {0: 222, 1: 223}),
        # Another job of that name
        (f"6|PENDING||PartitionDown\n{UP}", BOTH, LONG, LONG, {0: 222, 1: 223}),
        (UP, READY, LONG, SHORT, {0: 222}),  # time is up
        (UP, READY + FAILED, LONG, LONG, {0: 222}),  # no node is left to wait for
        (UP, FAILED, LONG, SHORT, ["slurm-nodes-silent"]),
        (WAITS, BOTH, SHORT, LONG, ["slurm-queued-too-long"]),
        ("7|PENDING||JobHeldUser", BOTH, LONG, LONG, ["slurm-job-held"]),
        ("7|REQUEUE_HOLD||None", BOTH, LONG, LONG, ["slurm-job-held"]),
        (
            "7|PENDING||(ReqNodeNotAvail, UnavailableNodes:n1)",
            BOTH,
            SHORT,
            LONG,
            ["slurm-queued-too-long"],
        ),
        ("7|PENDING||PartitionTimeLimit", BOTH, LONG, LONG, ["slurm-never-starts"]),
        ("7|PENDING||QOSMaxNodePerJobLimit", BOTH, LONG, LONG, ["slurm-never-starts"]),
        ("7|PENDING||AssocMinCpuLimit", BOTH, LONG, LONG, ["slurm-never-starts"]),
        (
            "7|FAILED|n[1-2]|NonZeroExitCode",
            FAILED,
            LONG,
            LONG,
            ["slurm-step-failed", "slurm-job-failed"],
        ),
        (
            "7|FAILED|n[1-2]|None",
            "srun: error: no plugin\n",
            LONG,
            LONG,
            ["slurm-step-failed", "slurm-job-failed"],
        ),
        ("7|TIMEOUT|n[1-2]|TimeLimit", FAILED, LONG, LONG, ["slurm-job-timed-out"]),
        ("", BOTH, LONG, LONG, ["slurm-job-cancelled"]),  # slurmctld has forgotten it
    ],
)
def test_bring_up_waits_for_ready_nodes_or_names_what_failed(
    squeue: str | list[str],
    log: str | list[str],
    queue_s: float,
    start_s: float,
    expected: dict[int, int] | list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bringup, "_POLL_S", (0.001, 0.002))
    settings = SlurmPlatform(kind="slurm", queue_timeout_s=queue_s, start_timeout_s=start_s)
    login = Answers(squeue=squeue, sh=log, sacct="7|CANCELLED by 1000|n[1-2]")
    bring_up = bringup.BringUp(login, settings, "r1", "7", 2)
    if isinstance(expected, dict):
        assert bring_up.wait() == (jobs.Job("7", "RUNNING", "n[1-2]", "None"), expected)
        return
    with pytest.raises(LaunchError) as error:
        bring_up.wait()
    assert codes(error.value.reason) == expected


@pytest.mark.parametrize(
    ("squeue", "restarts", "sinfo", "expected"),
    [
        (UP, "0", "allocated", None),
        (UP, "1", "allocated", None),  # once before it was up, as at launch
        (UP, "2", "allocated", "slurm-job-cancelled"),
        (UP, "2", "down", None),
        ("7|CANCELLED|n[1-2]|None", "1", "idle", "slurm-job-cancelled"),
        ("7|CANCELLED|n[1-2]|None", "2", "idle", "slurm-job-cancelled"),
        ("7|CANCELLED|n[1-2]|None", "1", "idle*", None),
        ("7|NODE_FAIL|n[1-2]|None", "1", "failing", None),
        (
            ["7|COMPLETING|n[1-2]|None", "7|PREEMPTED|n[1-2]|None"],
            "1",
            "idle",
            "slurm-job-cancelled",
        ),
        (WAITS, "1", "idle", "slurm-job-cancelled"),
        ("7|REQUEUE_HOLD||None", "2", "idle", "slurm-job-held"),
        ("", "1", "idle", "slurm-job-gone"),
        ("squeue: error: Unable to contact slurm controller", "1", "idle", None),
    ],
)
def test_a_node_is_blamed_unless_its_job_has_ended(
    squeue: str | list[str],
    restarts: str,
    sinfo: str,
    expected: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "_PAUSE_S", 0.001)
    login = Answers(squeue=squeue, restarts=restarts, sinfo=sinfo)
    reason = jobs.blameless_reason(login, "r1", "7", 1, "n1")
    assert codes(reason) == ([expected] if expected else [])


def test_jobs_are_cancelled_until_their_nodes_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_PAUSE_S", 0.001)
    states = [
        f"{UP}\n6|TIMEOUT|n3|TimeLimit\n8|COMPLETING|n4|None",
        "7|COMPLETING|n[1-2]|None",
        "7|CANCELLED|n1|None",
    ]
    login = Answers(squeue=states, scancel="")
    jobs.end_jobs(login, "r1")
    assert [call.split()[0] for call in login.calls] == ["squeue", "scancel", "squeue", "squeue"]
    assert login.calls[1] == "scancel 7"
    monkeypatch.setattr(jobs, "_CANCELLED_S", -1.0)
    for state, on in (("7|COMPLETING|n[1-2]|None", r"n\[1-2\]"), (WAITS, "no node")):
        with pytest.raises(LaunchError, match=on) as error:
            jobs.end_jobs(Answers(squeue=state, scancel=""), "r1")
        assert codes(error.value.reason) == ["slurm-job-does-not-end"]


def test_submit_returns_the_job_id_or_quotes_sbatch() -> None:
    assert jobs.submit(Answers(sbatch="a word of the site\n7;cluster\n"), "job.sbatch") == "7"
    for printed, words in (
        ("", "no job id in ''"),
        ("submitted", "no job id in 'submitted'"),
        ("sbatch: ***\nsbatch: error: invalid account\nsbatch: error: Batch job refused\n",
         "sbatch refused the job: invalid account; Batch job refused"),
    ):  # fmt: skip
        with pytest.raises(LaunchError) as error:
            jobs.submit(Answers(sbatch=printed), "job.sbatch")
        assert error.value.reason.sentence.endswith(words)
    with pytest.raises(MissingError, match="sbatch is missing on this machine"):
        jobs.submit(Answers(), "job.sbatch")


def test_the_message_of_a_program_is_what_it_printed_last(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = [
        Finished(3, "", ""),
        Finished(1, "printed", ""),
        Finished(1, "printed", "x: error: " + "e" * 2000),
    ]
    monkeypatch.setattr(Login, "_finished", lambda *_: outputs.pop(0))
    for message in ("status 3", "printed", "e" * 1000):
        with pytest.raises(CommandError) as error:
            Login().run(["x"])
        assert error.value.message == message


IN_ORDER = dict.fromkeys(("sbatch", "squeue", "scancel", "scontrol", "sinfo", "sh"), "")


@pytest.mark.parametrize(
    ("answers", "settings", "expected"),
    [
        ({}, {}, []),
        ({}, {"launch": "srun"}, ["srun is missing on this machine"]),
        ({"srun": "", "sh": "MPI plugin types are...\nnone\npmi2"}, {"launch": "srun"},
         ["srun on this machine has no MPI plugin pmix; it has: none pmi2"]),
        ({"srun": "", "sh": "specific pmix"}, {"launch": "srun"}, []),
        ({"scontrol": "scontrol: error: no answer"}, {}, ["scontrol on this machine failed: no answer"]),
        ({"sbatch": ["24.05", "sbatch: error: allocation failure: no such nodes"],
          "sinfo": ["24.05", "".join(f"n{i}: x\n" for i in range(4))]},
         {}, ["sbatch refused the job: no such nodes (out of use: n0: x; n1: x; n2: x; n3: x)"]),
        ({"sbatch": ["24.05", "sbatch: error: no"], "sinfo": ["24.05", "".join(f"n{i}: x\n" for i in range(6))]},
         {}, ["sbatch refused the job: no (out of use: n0: x; n1: x; n2: x; n3: x and 2 more)"]),
    ],
)  # fmt: skip
def test_doctor_names_what_keeps_a_job_from_starting(
    answers: dict[str, str | list[str]], settings: dict[str, str], expected: list[str]
) -> None:
    described = SlurmPlatform.model_validate({"kind": "slurm", **settings})
    cluster = Cluster.model_validate({"name": "test", "nodes": 2, "platform": described})
    assert (
        list(map(str, doctor.problems(Answers(**IN_ORDER | answers), cluster, described)))
        == expected
    )


@pytest.mark.parametrize(("printed", "lacking"), [("", 1), ("readable\n", 0)])
def test_a_file_that_the_login_node_cannot_read_keeps_a_run_from_starting(
    printed: str, lacking: int
) -> None:
    described = SlurmPlatform(kind="slurm", runtime="apptainer")
    cluster = Cluster.model_validate(
        {"name": "test", "nodes": 2, "platform": described, "image": "/s/t.sif"}
    )
    problems = doctor.problems(Answers(**IN_ORDER | {"sh": printed}), cluster, described)
    assert [problem.code for problem in problems] == ["slurm-image-unreadable"] * lacking


@pytest.mark.parametrize(
    ("printed", "level", "settings", "expected"),
    [
        ("PreemptMode=CANCEL", "Operator", {"dry_run": False}, []),
        ("PreemptMode=OFF", "", {}, ["slurm-not-preempted"]),
        ("PreemptMode=CANCEL", "None", {"dry_run": False}, ["slurm-may-not-drain"]),
        ("PreemptMode=CANCEL", "None", {}, []),
    ],
)
def test_doctor_names_what_keeps_qualify_jobs_from_being_preempted(
    printed: str, level: str, settings: dict[str, bool], expected: list[str]
) -> None:
    described = SlurmPlatform(kind="slurm")
    fields = {
        "name": "test",
        "nodes": 2,
        "platform": described,
        "qualify": {"partition": "scavenge", **settings},
    }
    answers = Answers(**IN_ORDER | {"scontrol": printed, "sh": level})
    problems = doctor.problems(answers, Cluster.model_validate(fields), described)
    assert [problem.code for problem in problems] == expected


PULL = """\
srun: cluster configuration lacks support for cpu binding
0: slurmstepd: pyxis: importing docker image: nvcr.io#nvidia/nothing:1
0: slurmstepd: error: pyxis: child 4242 failed with error code: 1
0: slurmstepd: error: pyxis: failed to import docker image
0: slurmstepd: error: pyxis: printing enroot log file:
0: slurmstepd: error: pyxis:     [INFO] Querying registry for permission grant
0: slurmstepd: error: pyxis:     [ERROR] URL https://nvcr.io/v2/nvidia/nothing/manifests/1 returned error code: 404
0: slurmstepd: error: pyxis: couldn't start container
0: slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1
0: slurmstepd: error: Failed to invoke spank plugin stack
"""


def test_nodes_log_gives_the_first_port_and_failure_of_each_task() -> None:
    ready = (
        " 0: seatrial-node: ready 222\n10: seatrial-node: ready 222\n 0: seatrial-node: ready 9\n"
    )
    log = bringup.read_nodes_log(
        f"{ready}11: seatrial-node: ready 65536\n 3: seatrial-node: failed: why\n"
    )
    assert log.ports == {0: 222, 10: 222}
    assert log.problems == {3: "why"}
    assert set(log.last_lines) == {11}


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (PULL, "returned error code: 404"),
        (
            "1: FATAL:   could not open image /no/such.sif\n1: something after it\n",
            "could not open image /no/such.sif",
        ),
        ("1: first\n1: sh: 1: syntax error\n", "sh: 1: syntax error"),
        ("1: \x1b[31mred\n", "red"),
    ],
)
def test_the_most_telling_line_of_a_task_is_kept(log: str, words: str) -> None:
    (line,) = bringup.read_nodes_log(log).last_lines.values()
    assert words in line
    assert "\x1b" not in line


def test_one_problem_of_many_tasks_is_one_reason_and_the_first_ones_are_shown() -> None:
    problems = (
        dict.fromkeys((5, 1, 3), "no key")
        | {2: "port 222 is in use"}
        | {i: f"own {i}" for i in range(6, 10)}
    )
    reasons = bringup._step_problems(problems)
    assert len(reasons) == 4
    assert [reason.sentence.partition(":")[0] for reason in reasons[:2]] == [
        "task 1, task 3 and 1 more",
        "task 2",
    ]


@pytest.mark.parametrize(
    ("pending", "meaning"),
    [
        ("Resources", "waiting for nodes"),
        ("(ReqNodeNotAvail, UnavailableNodes:n1)", "down, drained or reserved"),
        ("QOSGrpNodeLimit", "use up what these may have together"),
        ("AssocMaxJobsLimit", "use up what these may have together"),
        ("BadConstraints", "no nodes can satisfy"),
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_reason_codes_of_pending_jobs_are_explained(pending: str, meaning: str) -> None:
    assert meaning in jobs.waits_for(pending)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (
            "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-2],m1\nSwitchName=s1 Level=0 LinkSpeed=1 "
            "Nodes=n[3-9]\n"
            "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-9],m1 Switches=s[0-1]\n",
            {"s0": {"n1", "n2"}, "s1": {"n3"}, "top": {"n1", "n2", "n3"}},
        ),
        ("BlockName=b1 BlockIndex=0 Nodes=n[1-4] BlockSize=4\n", {"b1": {"n1", "n2", "n3"}}),
        ("SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[2-1]\n", {}),
        ("scontrol: error: No topology information available\n", {}),
    ],
)
def test_switches_and_blocks_are_those_of_the_jobs_nodes(
    printed: str, expected: dict[str, set[str]]
) -> None:
    assert jobs.switches(Answers(scontrol=printed), ["n1", "n2", "n3"]) == expected
