"""Replace a rank by a command of the user's, in the environment that torchrun gives.

    torchrun_env.py --master-addr ADDRESS --master-port PORT -- COMMAND...

RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the launcher
(placement.py) and the arguments. The command takes this process's place, so its output and exit
status are the rank's. Exit statuses: 2 contradictory variables, 3 the command cannot be started.
"""

import os
import socket
import sys

import placement
from command_line import parser_of

OPTIONS = (
    ("--master-addr", {"required": True}, None, "address of rank 0's node"),
    ("--master-port", {"type": int, "required": True}, None, "a free port there"),
    ("--device", str, None, "not used"),
    ("--network", str, None, "not used"),
    ("--timeout-s", str, None, "not used"),
    ("command", {"nargs": "+"}, None, "what each rank runs"),
)


def main():
    """Become the command."""
    options = parser_of("torchrun_env.py", __doc__, OPTIONS).parse_args()
    try:
        here = placement.place(os.environ)
    except placement.ContradictoryEnvironment as error:
        leave(str(error), 2)
    local = (
        os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
        or os.environ.get("SLURM_NTASKS_PER_NODE")
        or ""
    )
    os.environ.update(
        RANK=str(here.rank),
        WORLD_SIZE=str(here.world_size),
        LOCAL_RANK=str(here.local_rank),
        LOCAL_WORLD_SIZE=local.partition("(")[0] or os.environ.get("LOCAL_WORLD_SIZE", "1"),
        MASTER_ADDR=options.master_addr,
        MASTER_PORT=str(options.master_port),
    )
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
    try:
        os.execvp(options.command[0], options.command)
    except OSError as error:
        leave(f"cannot start: {options.command[0]}: {error.strerror}", 3)


def leave(cause, status):
    """Print in one line which rank cannot start and why, and exit."""
    rank = placement.shown_rank(os.environ)
    sys.stderr.write(f"training probe: {socket.gethostname()} rank {rank}: {cause}\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
