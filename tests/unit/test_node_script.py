"""seatrial/platforms/sshd/node.sh: what it does apart from starting sshd."""

import subprocess
from pathlib import Path

import seatrial.platforms.sshd.program as sshd

SCRIPT = Path(sshd.__file__).with_name("node.sh")


def test_what_it_has_started_is_seen_while_other_processes_end(tmp_path: Path) -> None:
    """awk gives up where a process ends between its open and its read, which happens on every busy machine."""
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
    done = subprocess.run(["sh", str(program)], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "missed 0\n", done.stderr
