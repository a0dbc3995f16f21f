"""Replace a rank by a command of the user's, in the environment that torchrun gives.

    torchrun_env.py --master-addr ADDRESS --master-port PORT -- COMMAND...

RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the launcher
(placement.py) and the arguments. The command takes this process's place, so its output and exit
status are the rank's. Exit statuses: 2 contradictory variables, 3 the command cannot be started.
"""

import argparse
import os
import socket
import sys

try:
    import placement
except ModuleNotFoundError as missing:
    sys.stderr.write(f"{sys.argv[0]}: cannot start: {missing.name}.py is missing beside it\n")
    sys.exit(3)


def main():
    options = parse()
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


def parse():
    parser = argparse.ArgumentParser(
        prog="torchrun_env.py", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--master-addr", required=True, help="address of rank 0's node")
    parser.add_argument("--master-port", type=int, required=True, help="a free port there")
    for name in ("--device", "--network", "--timeout-s"):
        parser.add_argument(name, help="not used")
    parser.add_argument("command", nargs="+", help="what each rank runs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
