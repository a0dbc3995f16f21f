"""`seatrial ssh`: a shell or a command on a node of a run."""

import logging

import click


@click.command()
@click.argument("run_word", metavar="RUN")
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh(run_word: str, node: str, command: tuple[str, ...]) -> None:
    """Open a shell on NODE (a name, an index or head) of RUN (an id or a folder), or run COMMAND there.

    The nodes of RUN must be up.

    Exit status: that of ssh, which is the command's; 2 if there is no such run or node.
    """
    from seatrial.runs.login import log_in

    logging.getLogger("seatrial").setLevel(logging.ERROR)
    log_in(run_word, node, command)


@click.command(hidden=True)
@click.argument("run_word", metavar="RUN")
@click.argument("node")
def dial(run_word: str, node: str) -> None:
    """Connect standard input and output to a node's sshd; `seatrial ssh` uses this as ProxyCommand."""
    from seatrial.runs.login import dial as dial_node

    logging.getLogger("seatrial").setLevel(logging.ERROR)
    dial_node(run_word, node)
