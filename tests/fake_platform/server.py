"""The SSH server of a node in memory: paramiko's, on one end of a socket pair."""

import errno
import io
import os
import shlex
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_SUCCEEDED,
)

from seatrial.remote.ssh import new_key_pair
from tests.fake_platform.node import FakeNode, ProgramOutput

if TYPE_CHECKING:
    from seatrial.remote.ssh import KeyPair

_TIMEOUT_S = 60.0  # for a client that falls silent, so that no thread waits for ever

Run = Callable[[tuple[str, ...], str], ProgramOutput]  # a command's words and its standard input


class _Wire(socket.socket):
    """A socket whose end wakes whoever reads from it, so that paramiko's thread does not poll once
    more.
    """

    def close(self) -> None:
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)
        super().close()


def dial(node: FakeNode, user_key: str, run: Run) -> socket.socket:
    """A connected socket to the node's SSH server, which lets that public key in and answers
    commands by `run`.

    Raises ConnectionRefusedError where nothing listens.
    """
    if node.refuses or node.dead:
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    ours, theirs = (_Wire(fileno=end.detach()) for end in socket.socketpair())
    threading.Thread(
        target=_serve, args=(theirs, node, user_key, run), daemon=True, name=node.name
    ).start()
    return ours


def _serve(wire: socket.socket, node: FakeNode, user_key: str, run: Run) -> None:
    transport = paramiko.Transport(wire)
    node.connections.append(transport.close)
    transport.add_server_key(_private(new_key_pair() if node.wrong_host_key else node.host_key))
    # A client that went away, or refused our key
    with suppress(paramiko.SSHException, EOFError, OSError):
        transport.start_server(
            event=threading.Event(), server=_Sessions(transport, node, user_key, run)
        )


def _private(key: "KeyPair") -> paramiko.Ed25519Key:
    return paramiko.Ed25519Key(file_obj=io.StringIO(key.private))


class _Sessions(paramiko.ServerInterface):
    """Lets one key in and runs commands, each in a thread of its own."""

    def __init__(
        self, transport: paramiko.Transport, node: FakeNode, user_key: str, run: Run
    ) -> None:
        self._transport = transport
        self._node = node
        self._user_key = user_key
        self._run = run
        self._hanging: list[paramiko.Channel] = []

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        known = f"{key.get_name()} {key.get_base64()}" == self._user_key
        return AUTH_SUCCESSFUL if known else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED if kind == "session" else OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        words = words_of(command.decode())
        threading.Thread(
            target=self._answer, args=(channel, words), daemon=True, name=self._node.name
        ).start()
        return True

    def _answer(self, channel: paramiko.Channel, words: tuple[str, ...]) -> None:
        channel.settimeout(_TIMEOUT_S)
        with suppress(OSError, EOFError, paramiko.SSHException):  # the caller went away
            answers_lines = _script(words) in ("stream.py", "programs.py")
            stdin = (
                ""
                if answers_lines
                else _line(channel)
                if _script(words) == "supervise.py"
                else _all(channel)
            )
            while True:
                if not self._node.begin(words):
                    self._node.disconnect()
                    return
                answer = self._run(words, stdin)
                channel.sendall(answer.output.encode())
                channel.sendall_stderr(answer.rank_0.encode())
                if answer.hangs:
                    self._hanging.append(channel)  # or it would be collected, and end
                    return
                stdin = _line(channel) if answers_lines and not answer.exit_status else ""
                if not stdin:
                    break
            channel.send_exit_status(answer.exit_status)
            channel.close()


def words_of(command: str) -> tuple[str, ...]:
    """The words of a command line, without the `timeout` and `sh -c` that every bounded command is
    wrapped in.
    """
    words = shlex.split(command)
    if words[:3] == ["timeout", "-s", "KILL"] and words[4:6] == ["sh", "-c"]:
        return tuple(shlex.split(words[6]))
    return tuple(words)


def _script(words: tuple[str, ...]) -> str:
    """The script that an interpreter is to run, without its folder: standard input of some stays
    open.
    """
    return next((word.rpartition("/")[2] for word in words[1:3] if word.endswith(".py")), "")


def _line(channel: paramiko.Channel) -> str:
    line = b""
    while not line.endswith(b"\n") and (data := channel.recv(65536)):
        line += data
    return line.decode()


def _all(channel: paramiko.Channel) -> str:
    data = bytearray()
    while part := channel.recv(65536):
        data += part
    return data.decode()
