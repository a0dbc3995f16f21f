"""Images for the tests' Slurm, and what starts them: a SPANK plugin in place of Pyxis, a script in
place of Apptainer.

An image is a root file system with this machine's /usr in it, and a /etc, /tmp and /run of its own.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

MARK = "etc/seatrial-image"  # in the image, and nowhere else
_HERE = Path(__file__).parent
_HEADER = Path("/usr/include/slurm/spank.h")
_LINKS = ("bin", "lib", "lib64", "sbin")
_FOLDERS = (
    "dev",
    "opt/trials/bin",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr",
    "var/empty",
    "var/tmp",
)
REFERENCE = "nvcr.io/nvidia/pytorch:25.08-py3"
_ENVIRONMENT = (
    "PATH=/opt/trials/bin:/usr/sbin:/usr/bin:/sbin:/bin\nNCCL_ALGO=Tree\nNCCL_P2P_DISABLE=0\n"
)

# In place of nccl-tests, which needs GPUs: rank 0 tells what the test sets, and where it runs.
_ALL_REDUCE_PERF = f"""\
#!/bin/sh
[ "$SLURM_PROCID" = 0 ] || exit 0
echo "# test P2P=${{NCCL_P2P_DISABLE:-}} ALGO=${{NCCL_ALGO:-}} ranks=$SLURM_NTASKS image=$(cat /{MARK})"
"""

# As sites define it: a function that login shells have, and jobs read from a file.
_MODULES = """\
module() {
    [ "$1 $2" = "load apptainer/1.3" ] || { echo "no module $2" >&2; return 1; }
    PATH=$LMOD_PKG/bin:$PATH
}
"""

# Its options are those of `apptainer exec`; the image's variables win over the host's,
# APPTAINERENV_ over both.
_APPTAINER = """\
#!/bin/bash
set -eu
[ "$1" = exec ] || { echo "FATAL: unknown command $1" >&2; exit 255; }
shift
binds=()
while [[ $1 == --* ]]; do
    case $1 in
        --nv) ;;
        --bind=*) binds+=("${1#--bind=}") ;;
        *) echo "Error for command \\"exec\\": unknown flag: $1" >&2; exit 1 ;;
    esac
    shift
done
root=$1.root
shift
[ -d "$root" ] || { echo "FATAL: could not open image ${root%.root}: no such file or directory" >&2; exit 255; }
while IFS= read -r line; do export "${line?}"; done <"$root/etc/environment"
for name in ${!APPTAINERENV_@}; do export "${name#APPTAINERENV_}=${!name}"; unset "$name"; done
exec /usr/bin/unshare --mount /bin/bash -s "$root" "$PATH" "${binds[@]}" 3<&0 4< <(printf '%s\\0' "$@") <<'END'
PATH=/usr/sbin:/usr/bin:/sbin:/bin root=$1 path=$2
shift 2
for folder in /usr /proc /sys /dev /dev/shm /tmp; do mount --bind "$folder" "$root$folder"; done
mount -t tmpfs tmpfs "$root/run"
for bind; do
    IFS=: read -r source target flags <<<"$bind"
    mkdir -p "$root$target"
    mount --bind "$source" "$root$target"
    [ "$flags" != ro ] || mount -o remount,bind,ro "$root$target"
done
mapfile -d '' -t command <&4
exec 4<&-
exec chroot "$root" /usr/bin/env PATH="$path" "${command[@]}" 0<&3 3<&-
END
"""


def lacking() -> str:
    """What the plugin cannot be compiled without, in one line; empty when all is there."""
    absent = [] if shutil.which("gcc") else ["gcc"]
    return " ".join([*absent, *([] if _HEADER.is_file() else ["libslurm-dev"])])


class Containers:
    """`folder` is what the nodes share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sqsh, self.sif = folder / "trials.sqsh", folder / "trials.sif"
        self.modules = folder / "lmod"

    def prepare(self) -> None:
        """Make the images and what starts them.

        Raises CalledProcessError where the plugin does not compile.
        """
        for image in (self.sqsh, self.sif):
            image.parent.mkdir(exist_ok=True)
            image.touch()
            _make_root(Path(f"{image}.root"))
        _make_root(self.folder / REFERENCE.replace("/", "+").replace(":", "+"))
        (self.folder / "imports").mkdir()
        self._make_module()
        if not lacking():
            options = ["-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
            subprocess.run(
                ["gcc", *options, "-o", str(self._plugin), str(_HERE / "pyxis.c")], check=True
            )

    @property
    def _plugin(self) -> Path:
        return self.folder / "pyxis.so"

    @property
    def plugstack(self) -> str:
        """Slurm's file of that name."""
        return f"required {self._plugin} {self.folder}\n" if self._plugin.exists() else ""

    def _make_module(self) -> None:
        program = self.modules / "bin" / "apptainer"
        program.parent.mkdir(parents=True)
        program.write_text(_APPTAINER)
        program.chmod(0o755)
        (self.modules / "init").mkdir()
        (self.modules / "init" / "sh").write_text(_MODULES)


def mounts() -> list[dict[str, Any]]:
    """What an image lacks: the Python of these tests, which has torch."""
    return [
        {"source": path, "target": path} for path in dict.fromkeys((sys.prefix, sys.base_prefix))
    ]


def _make_root(root: Path) -> None:
    for name in _FOLDERS:
        (root / name).mkdir(parents=True)
    for name in _LINKS:
        (root / name).symlink_to(f"usr/{name}")
    shutil.copytree("/etc", root / "etc", symlinks=True)
    (root / "etc/environment").write_text(_ENVIRONMENT)
    (root / MARK).write_text(f"{root.name}\n")
    tool = root / "opt/trials/bin/all_reduce_perf"
    tool.write_text(_ALL_REDUCE_PERF)
    tool.chmod(0o755)
