"""A stand-in for the command `runai`: a submit becomes real processes, each pod a set of namespaces on one bridge.

    python standin.py FOLDER ARGUMENTS OF RUNAI...

Pods have a host name, an address, /tmp and processes of their own. `exec` runs in them, `delete` ends them. What it is
called with is written to FOLDER/calls.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

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
PROJECT = Path(__file__).parents[2]


def ip(arguments: str) -> bool:
    return subprocess.run(["ip", *arguments.split()], capture_output=True, check=False).returncode == 0


class Workload:
    """One workload, whose state is a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.folder = name, folder / "workloads" / name

    def submit(self, framework: str, workers: int, seconds: str) -> None:
        self.folder.mkdir(parents=True)
        number = next(n for n in range(200, 250) if ip(f"link add runaitest{n} type bridge"))
        bridge = f"runaitest{number}"
        (self.folder / "bridge").write_text(bridge)
        ip(f"link set {bridge} up")
        first = "launcher" if framework == "mpi" else "master-0"
        pods = [f"{self.name}-{first}", *(f"{self.name}-worker-{i}" for i in range(workers))]
        addresses = {pod: f"10.{number}.0.{i + 2}" for i, pod in enumerate(pods)}
        hosts = self.folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{where} {pod}\n" for pod, where in addresses.items()))
        for i, (pod, address) in enumerate(addresses.items()):
            self._start(bridge, i, pod, address, seconds)

    def _start(self, bridge: str, i: int, pod: str, address: str, seconds: str) -> None:
        space = f"{bridge}-{i}"
        ip(f"netns add {space}")
        ip(f"link add {bridge}v{i} type veth peer name eth0 netns {space}")
        ip(f"link set {bridge}v{i} master {bridge} up")
        for command in ("link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up"):
            ip(f"-n {space} {command}")
        script = SHELL.format(pod=pod, hosts=self.folder / "hosts", project=PROJECT, seconds=seconds)
        isolated = [
            "unshare",
            "--uts",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            script,
        ]
        process = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{space}", *isolated],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        (self.folder / f"{pod}.pid").write_text(str(process.pid))

    def exec(self, pod: str, command: list[str]) -> None:
        outer = int((self.folder / f"{pod}.pid").read_text())
        init = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0]
        os.execvp("nsenter", ["nsenter", "--target", init, "--all", *command])

    def delete(self) -> None:
        for file in self.folder.glob("*.pid"):
            os.kill(int(file.read_text()), signal.SIGKILL)
        bridge = (self.folder / "bridge").read_text()
        for space in Path("/run/netns").glob(f"{bridge}-*"):
            ip(f"netns del {space.name}")
        ip(f"link del {bridge}")
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
