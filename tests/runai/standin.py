"""A stand-in for the command `runai`: a submit becomes real processes, each pod a set of namespaces
on one bridge.

    python standin.py FOLDER ARGUMENTS OF RUNAI...

Pods have a host name, an address, /tmp and processes of their own. `exec` runs in them, `delete`
ends them. What it is called with is written to FOLDER/calls.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
sys.path.insert(0, str(PROJECT))
from tests.virtual_hosts import Network, init_of  # noqa: E402

# The pod's /tmp hides this machine's, where the project itself may lie: its Python has to stay.
SHELL = """
hostname {pod}
mount --bind {hosts} /etc/hosts
exec 3<{project}
mount -t tmpfs tmpfs /tmp
case {project} in /tmp/*) mkdir -p {project} && mount -c --bind /proc/self/fd/3 {project} ;; esac
exec 3<&-
mkdir -p /run/sshd
exec sleep {seconds}
"""


class Workload:
    """One workload, whose state is a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.folder = name, folder / "workloads" / name

    def submit(self, framework: str, workers: int, seconds: str) -> None:
        self.folder.mkdir(parents=True)
        first = "launcher" if framework == "mpi" else "master-0"
        pods = [f"{self.name}-{first}", *(f"{self.name}-worker-{i}" for i in range(workers))]
        network, hosts = Network(pods), self.folder / "hosts"
        network.make()
        (self.folder / "network").write_text(str(network.number))
        hosts.write_text(
            "127.0.0.1 localhost\n" + "".join(f"{network.address(pod)} {pod}\n" for pod in pods)
        )
        for pod in pods:
            script = SHELL.format(pod=pod, hosts=hosts, project=PROJECT, seconds=seconds)
            process = subprocess.Popen(
                network.inside(pod, "sh", "-c", script),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            (self.folder / f"{pod}.pid").write_text(str(process.pid))

    def exec(self, pod: str, command: list[str]) -> None:
        init = init_of(int((self.folder / f"{pod}.pid").read_text()))
        os.execvp("nsenter", ["nsenter", "--target", str(init), "--all", *command])

    def delete(self) -> None:
        pids = {file.stem: int(file.read_text()) for file in self.folder.glob("*.pid")}
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        Network(list(pids), int((self.folder / "network").read_text())).remove()
        shutil.rmtree(self.folder)


def options_of(words: list[str]) -> dict[str, str]:
    return dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))


def main(folder: Path, arguments: list[str]) -> None:
    with (folder / "calls").open("a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    if arguments[1] == "list":
        print("[]")
        return
    _, framework, verb, name, *rest = arguments
    cut = rest.index("--") if "--" in rest else len(rest)
    options, command = options_of(rest[:cut]), rest[cut + 1 :]
    workload = Workload(folder, name)
    if verb == "submit":
        workload.submit(framework, int(options["workers"]), command[-1])
    elif not workload.folder.exists():
        sys.exit(f"Error: workload {name} not found in project {options['project']}")
    elif verb == "describe":
        print(json.dumps({"name": name, "actualPhase": "Running"}))
    elif verb == "exec":
        workload.exec(options["pod"], command)
    elif verb == "delete":
        workload.delete()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
