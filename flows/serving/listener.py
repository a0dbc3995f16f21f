"""The socket of a Prefect server, held by the process that starts the server again when it dies."""

import socket


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Listen on a TCP address; port 0 is any free one. Raises OSError, or TypeError for what is no host name.

    What connects inherits TCP_NODELAY. asyncio sets it only on sockets that it knows to be TCP, and uvicorn takes a
    socket by its number for a Unix one: each answer would wait 40 ms for the client's delayed acknowledgement.
    """
    listener = socket.socket()
    try:
        # One that was closed a moment ago does not count.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener
