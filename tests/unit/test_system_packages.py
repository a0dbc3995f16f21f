"""Programs that code and tests start are installed by scripts/, or are on every machine, or are the
site's own.

Only so does `make test` pass on a machine on which it never ran.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TREES = ("seatrial", "flows", "tasks", "tests", "benchmarks")
ORDINARY = ("system", "test")  # the scripts of `make run` and `make test`
OF_LANES = {  # further scripts, by the folder whose tests call them
    "tests/images": ("image",),
    "tests/docker": ("image",),
    "tests/browser": ("browser",),
    "tests/slurm": ("slurm",),
    "tests/baremetal": ("image",),
    "tests/e2e/kubernetes": ("kubernetes", "image"),
}
STARTS = {
    "run",
    "Popen",
    "check_output",
    "check_call",
    "call",
    "execvp",
    "which",
    "run_bounded",
    "LocalProcess",
}
TABLES = re.compile(r"_?(PACKAGES|TOOLS|REQUIRED|PROGRAMS)$", re.IGNORECASE)

# Of packages that every Debian has: bash, coreutils, dash, hostname, mawk, mount, sed, tar,
# util-linux.
ESSENTIAL = {
    *(
        "awk",
        "bash",
        "cat",
        "chroot",
        "cp",
        "date",
        "hostname",
        "id",
        "mkfifo",
        "mount",
        "mv",
        "nice",
        "nsenter",
        "od",
    ),
    *(
        "rm",
        "runuser",
        "sed",
        "sha256sum",
        "setpriv",
        "setsid",
        "sh",
        "sleep",
        "stat",
        "stty",
        "sync",
        "tail",
        "tar",
        "tee",
    ),
    *("timeout", "true", "umount", "uname", "unshare", "apt-get", "dpkg"),
}
BEFORE = {"git", "make", "python", "python3"}  # who has a checkout and calls make has them
# What a platform or a node has: code says what to do without it, and tests skip or bring a
# stand-in.
OF_THE_SITE = {
    *(
        "sbatch",
        "scancel",
        "scontrol",
        "sinfo",
        "squeue",
        "sacct",
        "srun",
        "kubectl",
        "runai",
        "docker",
        "apptainer",
    ),
    *(
        "singularity",
        "nvidia-smi",
        "rocm-smi",
        "amd-smi",
        "dcgmi",
        "fio",
        "all_reduce_perf",
        "go",
        "cc",
        "helm",
        "shellcheck",
    ),
    *("prometheus", "promtool", "prometheus-node-exporter", "prometheus-pushgateway"),
}
# By the lane itself
BUILT = {
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "pause",
}
IN_DEVELOPMENT = {"hadolint", "ruff", "uv", "prefect", "seatrial"}  # of pyproject's group `dev`
BESIDE = {  # of the same package as a program that a script asks for
    "kill": "ps",
    "ssh-keygen": "ssh",
    "ssh-keyscan": "ssh",
    "sacctmgr": "sbatch",
    "mariadb-install-db": "mariadbd",
}


def installed(*scripts: str) -> set[str]:
    """The programs that these scripts install."""
    texts = [(ROOT / "scripts" / f"{name}-packages").read_text() for name in scripts]
    return {
        program for text in texts for program in re.findall(r"^need (\S+) ", text, re.MULTILINE)
    }


def started() -> Iterator[tuple[str, str]]:
    """Each file with each program that it starts or looks for."""
    for tree in TREES:
        for file in sorted((ROOT / tree).rglob("*.py")):
            for program in programs_of(file.read_text()):
                yield str(file.relative_to(ROOT)), program


def scripts_of(file: str) -> tuple[str, ...]:
    """The scripts that have run before the tests of a file, or its code, can start a program."""
    lanes = (scripts for folder, scripts in OF_LANES.items() if file.startswith(f"{folder}/"))
    return (*ORDINARY, *next(lanes, ()))


def programs_of(text: str) -> Iterator[str]:
    """Names of programs: first words of what starts one or looks for one, and keys of tables of
    programs.
    """
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Call)
            and node.args
            and _name(node.func) in STARTS
            and not _is_other(node.func)
        ):
            yield from _first_word(node.args[0])
        if isinstance(node, ast.Assign) and any(
            TABLES.match(_name(target)) for target in node.targets
        ):
            yield from _keys(node.value)


def _name(node: ast.expr) -> str:
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else ""
    )


def _is_other(function: ast.expr) -> bool:
    """Whether it is a method `run` of something else than subprocess and shutil."""
    if _name(function) not in ("run", "call"):
        return False
    return not isinstance(function, ast.Attribute) or _name(function.value) not in (
        "subprocess",
        "login",
        "commands",
    )


def _first_word(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.List | ast.Tuple) and node.elts:
        yield from _first_word(node.elts[0])
    elif isinstance(node, ast.BinOp):
        yield from _first_word(node.left)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from re.findall(r"^[a-z][a-z0-9_.+-]*$", node.value)


def _is_of_names(table: ast.Dict) -> bool:
    """Whether its values are names of packages."""
    return all(isinstance(value, ast.Constant) for value in table.values)


def _keys(table: ast.expr) -> Iterator[str]:
    """Keys of the dictionaries in the value of a table, else the members of its list."""
    dictionaries = [
        node for node in ast.walk(table) if isinstance(node, ast.Dict) and _is_of_names(node)
    ]
    members = table.elts if isinstance(table, ast.List | ast.Tuple) else []
    for key in [*(key for each in dictionaries for key in each.keys), *members]:
        if key is not None:
            yield from _first_word(key)


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("subprocess.run(['iptables', '-A'])", ["iptables"]),
        ("subprocess.Popen(['ss'] + more)", ["ss"]),
        ("shutil.which('fio', path=PATH)", ["fio"]),
        ("_TOOLS = {'ip': 'iproute2', 'sshd': 'openssh-server'}", ["ip", "sshd"]),
        ("tools = _TOOLS | ({'iptables': 'iptables'} if needed else {})", ["iptables"]),
        ("REQUIRED = ('mpirun', 'nvidia-smi')", ["mpirun", "nvidia-smi"]),
        ("os.execvp('ssh', argv)", ["ssh"]),
        ("site.run('doctor'); run('bundle'); subprocess.run([program])", []),
    ],
)
def test_programs_started_in_code_are_found(text: str, programs: list[str]) -> None:
    assert list(programs_of(text)) == programs


def test_every_program_has_a_package() -> None:
    programs = list(started())
    assert {"iptables", "ps", "ssh", "mpirun", "ip", "podman"} <= {
        program for _, program in programs
    }
    there = ESSENTIAL | BEFORE | OF_THE_SITE | BUILT | IN_DEVELOPMENT
    missing = {}
    for file, program in programs:
        if BESIDE.get(program, program) not in there | installed(*scripts_of(file)):
            missing[program] = file
    assert missing == {}, (
        "add `need PROGRAM PACKAGE` to the script of scripts/ that its make target calls"
    )
