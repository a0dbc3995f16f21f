"""seatrial/platforms/sshd/node.sh: what it does apart from starting sshd."""

import os
import subprocess
from pathlib import Path

from seatrial import platforms
from seatrial.platforms.testbed import MADE_LATER, node_script
from seatrial.system.shipped import IMAGES
from seatrial.text.redact import SECRET_NAME

SCRIPT = Path(platforms.__file__).parent / "sshd" / "node.sh"
FUNCTIONS = IMAGES / "common" / "bin" / "seatrial-functions"
ASSIGNMENTS = """\
FOLDER=/tmp/seatrial-r1
PORT=222
USER_KEY='<made for each run>'
RUN_KEY='<made for each run>'
HOST_KEY='<made for each run>'
HOST_KEY_PUBLIC='<made for each run>'
LISTEN=10.0.0.1
"""


def test_node_script_starts_with_the_values_of_the_node() -> None:
    shipped = FUNCTIONS.read_text().removeprefix("#!/bin/sh\n") + SCRIPT.read_text()
    assert (
        node_script("r1", 222, MADE_LATER, MADE_LATER, listen="10.0.0.1") == ASSIGNMENTS + shipped
    )


def test_descendants_are_found_while_other_processes_end(tmp_path: Path) -> None:
    """awk stops at a process that ends between open and read, as happens on busy machines."""
    functions = SCRIPT.read_text().partition("\nclean_up()")[0].partition("\ndescendants()")
    program = tmp_path / "program"
    program.write_text(f"""
descendants(){functions[2]}
sleep 60 & child=$!
( while :; do for i in 1 2 3 4 5 6 7 8; do /bin/true & done; wait; done ) & others=$!
trap 'kill $child $others' EXIT
missed=0
for i in $(seq 60); do
    case " $(descendants $$ | tr '\\n' ' ') " in *" $child "*) ;; *) missed=$((missed + 1)) ;; esac
done
echo "missed $missed"
""")
    done = subprocess.run(["sh", str(program)], capture_output=True, text=True, check=True)
    assert done.stdout == "missed 0\n", done.stderr


def write_files(folder: Path, then: str) -> None:
    """Start a node's script as far as its files, and go on with `then`."""
    names = ("USER_KEY", "RUN_KEY", "HOST_KEY", "HOST_KEY_PUBLIC", "PORT")
    program = SCRIPT.read_text().partition("\nstart_sshd()")[0]
    start = f"{FUNCTIONS.read_text()}\n{program}\nwrite_files\n{then}"
    env = {
        "PATH": f"{os.environ['PATH']}:/usr/bin:/bin",
        "FOLDER": str(folder),
        **dict.fromkeys(names, "222"),
    }
    subprocess.run(["sh", "-s"], input=start, env=env, text=True, check=False, capture_output=True)


def test_what_a_killed_script_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    """Slurm's KillWait may be over before it has removed its keys."""
    live, dead, others = (tmp_path / f"seatrial-{name}" for name in ("live", "dead", "others"))
    others.mkdir()
    elsewhere = tmp_path / "seatrial-elsewhere"  # on a file system that hosts share
    elsewhere.mkdir()
    (elsewhere / "owner").write_text("another-host pid:[1] 1 1\n")
    write_files(dead, "kill -9 $$")
    assert (dead / "id_ed25519").exists()
    write_files(live, f'[ -e "{dead}" ] || : >"{tmp_path}/removed"; kill -9 $$')
    assert (tmp_path / "removed").exists()
    assert (live / "id_ed25519").exists()
    assert others.exists()
    assert elsewhere.exists()


def test_folder_of_a_running_script_is_not_removed(tmp_path: Path) -> None:
    first, second = tmp_path / "seatrial-first", tmp_path / "seatrial-second"
    program = f"cp {first}/owner {tmp_path}/owner; "
    names = "FOLDER=$1 USER_KEY=a RUN_KEY=b HOST_KEY=c HOST_KEY_PUBLIC=d PORT=222"
    begin = tmp_path / "begin.sh"
    begin.write_text(
        FUNCTIONS.read_text()
        + SCRIPT.read_text().partition("\nstart_sshd()")[0]
        + "\nwrite_files\n"
    )
    nested = f"{names} sh -s <{begin}"
    write_files(
        first,
        program + f"set -- {second}; {nested}; [ -e {first}/id_ed25519 ] && : >{tmp_path}/kept",
    )
    assert (tmp_path / "kept").exists()


def test_node_script_hides_the_same_secret_names_as_reports() -> None:
    assert f"secret_names='{SECRET_NAME.pattern}'\n" in FUNCTIONS.read_text()


def session_environment(**variables: str) -> dict[str, str]:
    """What a session on a node gets of the variables of its start."""
    program = f'. {FUNCTIONS}; session_environment >"$FILE"; exec env -i sh -c ". $FILE; env -0"'
    file = variables.pop("file")
    env = {"PATH": os.environ["PATH"], "FILE": file, **variables}
    done = subprocess.run(
        ["sh", "-c", program], env=env, capture_output=True, text=True, check=True
    )
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)


def test_sessions_get_the_start_environment_without_secrets_or_launcher_variables(
    tmp_path: Path,
) -> None:
    wanted = {
        "MULTI": "a\n'b' \"c\"",
        "NCCL_DEBUG": "INFO",
        "KEYBOARD": "us",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    secret = (
        "HF_TOKEN",
        "hf_token",
        "MY_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASS",
        "GH_PAT",
        "A_COOKIE",
        "X_DSN",
    )
    launchers = (
        "SLURM_JOB_ID",
        "SRUN_DEBUG",
        "SBATCH_QOS",
        "PMIX_RANK",
        "OMPI_COMM_WORLD_RANK",
        "HYDRA_HOST",
    )
    passed = {
        "SEATRIAL_PASS_ENV": "WANTED_TOKEN SLURM_CONF",
        "WANTED_TOKEN": "yes",
        "SLURM_CONF": "/etc/slurm.conf",
    }
    left_out = dict.fromkeys(
        (*secret, *launchers, "HOSTNAME", "SSH_CONNECTION", "BASH_ENV", "TERM"), "no"
    )
    environment = session_environment(
        file=str(tmp_path / "environment"), **wanted, **passed, **left_out
    )
    assert {name: environment.get(name) for name in wanted | passed} == wanted | passed
    assert not set(left_out) & set(environment)
