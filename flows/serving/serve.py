"""`seatrial serve`: a Prefect server, its UI, the deployments, their schedule and a runner, on one
machine.

This process starts server and runner again when they die. It owns the socket, so callers queue
while a server that died comes up again, and runs go on meanwhile.
"""

import asyncio
import dataclasses
import errno
import fcntl
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from seatrial.alerts.settings import check_alerts
from seatrial.checks.suites import load_suite
from seatrial.config.cluster import load_cluster
from seatrial.config.run import RUNS_URL
from seatrial.flows.serving.server import (
    CLIENT_AUTH,
    HEARTBEAT_S,
    ORIGINS,
    SERVER_AUTH,
    TEMPORARY,
    auth_file,
    configured_auth_string,
    kept_auth_string,
    listen,
    prefect_home,
)
from seatrial.flows.serving.signals import Stopped, stop_on_signals, uninterrupted
from seatrial.flows.serving.webserver import FILES, own_hosts, own_origins
from seatrial.history import check_history
from seatrial.model.errors import InputError, SeatrialError

REAP_CRON = "*/15 * * * *"
_LOOK_S = 0.5
_STOP_RUNNER_S = 75.0  # runs have 45 s to end
_STOP_SERVER_S = 10.0
# What dies sooner than this, this often in a row, will not come up
_QUICK_S = 20.0
_TRIES = 5
_DEFAULTS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    # Version 2 of the UI contacts Prefect's servers even without analytics
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S),
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",  # not pickle, where a result is kept at all
}


@dataclass(frozen=True, slots=True)
class ScheduledPass:
    """A pass of `seatrial qualify` on a schedule: the name and file of its cluster, and when it
    runs. Paths are absolute.
    """

    cluster: str
    file: str
    cron: str
    timezone: str


@dataclass(frozen=True, slots=True)
class ScheduledCheck(ScheduledPass):
    """A check on a schedule, with its suite."""

    suite: str


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Cluster files by their absolute paths, and options that win over the field `schedule` of
    each.
    """

    clusters: tuple[str, ...]
    suite: str | None = None
    cron: str | None = None
    timezone: str | None = None

    def scheduled(self) -> list[ScheduledCheck]:
        """Read the cluster files. Raises InputError."""
        checks = []
        for file in self.clusters:
            cluster = load_cluster(Path(file))
            own = cluster.schedule
            suite = self.suite or own.suite
            timezone = self.timezone or own.timezone or local_timezone()
            if Path(suite).suffix in (".yaml", ".yml"):
                suite = str(Path(suite).absolute())
            checks.append(
                ScheduledCheck(cluster.name, file, self.cron or own.cron, timezone, suite)
            )
        return checks

    def qualifying(self) -> "list[ScheduledPass]":
        """Read the cluster files that have the section `qualify`. Raises InputError."""
        passes = []
        for file in self.clusters:
            cluster = load_cluster(Path(file))
            if cluster.qualify is None:
                continue
            timezone = self.timezone or cluster.schedule.timezone or local_timezone()
            passes.append(ScheduledPass(cluster.name, file, cluster.qualify.cron, timezone))
        return passes


def validated(site: ServeConfig) -> ServeConfig:
    """Return the site if it is valid, else raise InputError."""
    checks = site.scheduled()
    names = [check.cluster for check in checks]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(
            f"two of the cluster files name cluster {twice!r}; give each a name of its own"
        )
    for check in checks:
        load_suite(check.suite)
        check_alerts(load_cluster(Path(check.file)).notify)
        options = "--" if site.cron or site.timezone else f"{check.file}: schedule."
        _check_schedule(check.cron, check.timezone, options)
    for each in site.qualifying():
        _check_schedule(each.cron, each.timezone, f"{each.file}: qualify.")
    check_history()
    return site


def _check_schedule(cron: str, timezone: str, options: str) -> None:
    from prefect.client.schemas.schedules import CronSchedule
    from pydantic import ValidationError

    try:
        ZoneInfo(timezone)
        # Prefect does not take all that there are: posix/...
        CronSchedule(cron=REAP_CRON, timezone=timezone)
    except (KeyError, ValueError, OSError) as error:
        raise InputError(
            f"{options}timezone {timezone}: unknown; legal are names such as Europe/Berlin, and UTC"
        ) from error
    legal = "needs minute, hour, day, month and weekday, such as '0 2 * * *'"
    # A sixth field would be seconds, and come last
    if len(cron.split()) > 5:
        raise InputError(f"{options}cron {cron!r}: {legal}")
    try:
        first_date(cron, timezone)
    except ValidationError as error:
        raise InputError(f"{options}cron {cron!r}: {legal}") from error
    except ValueError as error:
        raise InputError(
            f"{options}cron {cron!r}: there is no such day; legal is what comes, such as "
            "'0 2 * * *'"
        ) from error


def first_date(cron: str, timezone: str) -> datetime:
    """Return the next date of a schedule.

    Raises ValueError for an invalid schedule, or one that never comes.
    """
    from prefect.server.schemas.schedules import CronSchedule

    (due,) = asyncio.run(CronSchedule(cron=cron, timezone=timezone).get_dates(1))
    return due


def local_timezone() -> str:
    """Return the name of the machine's time zone, or UTC."""
    where = Path("/etc/localtime").resolve().as_posix()
    return where.partition("/zoneinfo/")[2].removeprefix("posix/") or "UTC"


def serve(site: ServeConfig, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises InputError, or SeatrialError when a process does not stay up.
    """
    validated(site)
    configured_auth_string()
    stop_on_signals()
    with _listening(host, port) as listener, _lock_home() as home:
        auth_string, shown = _login(home)
        for line in access_lines(_url(listener), shown):
            print(line, flush=True)
        with _children(site, listener, auth_string) as children:
            while True:
                for child in children:
                    child.look()
                time.sleep(_LOOK_S)


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Listen on the address. Raises InputError."""
    try:
        listener = listen(host, port, backlog=512)
    except OSError as error:
        other = f"something listens there already: http://{host}:{port}"
        why = other if error.errno == errno.EADDRINUSE else error.strerror
        ports = error.errno in (errno.EADDRINUSE, errno.EACCES)  # all else is about the address
        option, value = ("--port", port) if ports else ("--host", host)
        raise InputError(f"{option} {value}: {why}; give another {option}") from error
    except TypeError as error:  # what cannot be encoded as a name
        raise InputError(f"--host {host}: not an address; give another --host") from error
    with listener:
        yield listener


@contextmanager
def _lock_home() -> Iterator[Path]:
    """Lock PREFECT_HOME: two servers on it would take each other's runs. Raises InputError."""
    home = prefect_home()
    with (home / "seatrial-serve.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            other = (
                f"another seatrial serve (process {file.read().strip() or 'unknown'}) works there"
            )
            raise InputError(
                f"PREFECT_HOME {home}: {other}; give it all cluster files, or set PREFECT_HOME"
            ) from error
        file.truncate(0)
        print(os.getpid(), file=file, flush=True)
        yield home


def _login(home: Path) -> tuple[str, str]:
    """Return the login of UI, API and the runs' folders, and a shell expression for it.

    Print where it is kept; a new login is printed itself, once.

    Raises InputError.
    """
    if configured := configured_auth_string():
        return configured, f"${SERVER_AUTH}"
    auth_string, is_new = kept_auth_string(home)
    shown = (
        f"{auth_string} (shown this once; kept in {auth_file(home)})"
        if is_new
        else f"in {auth_file(home)}"
    )
    print(f"login    {shown}", flush=True)
    return auth_string, f"$(cat {shlex.quote(str(auth_file(home)))})"


def access_lines(url: str, login: str) -> list[str]:
    """Return lines that say how to log in; `login` is a shell expression for the auth string."""
    return [
        "         in the UI, type the whole of it, user:password, into the one field",
        "shell    for prefect and seatrial in another terminal:",
        f"         export PREFECT_API_URL={url}/api",
        f'         export {CLIENT_AUTH}="{login}"',
    ]


def _url(listener: socket.socket) -> str:
    """Return the address of the server for processes of this machine."""
    host, port = listener.getsockname()
    return f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"


@contextmanager
def _children(
    site: ServeConfig, listener: socket.socket, auth_string: str
) -> "Iterator[list[_Child]]":
    """Start server and runner; end both afterwards, the runner first."""
    host, port = listener.getsockname()
    url = _url(listener)
    # By browsers, which may be elsewhere
    public_url = os.environ.get("PREFECT_UI_URL", url).rstrip("/")
    fd = listener.fileno()
    # Its other end keeps the server alive: this process and the runner have it
    life, living = os.pipe()
    web = [
        "seatrial.flows.serving.webserver",
        str(fd),
        str(life),
        str(Path("runs").absolute()),
        ",".join(own_hosts(host, public_url)),
    ]
    work = ["seatrial.flows.serving.runner", json.dumps(dataclasses.asdict(site))]
    server_environment, runner_environment = _environments(host, port, url, public_url, auth_string)
    server = _Child("the Prefect server", web, server_environment, [fd, life], _STOP_SERVER_S)
    runner = _Child("the runner", work, runner_environment, [living], _STOP_RUNNER_S)
    try:
        yield [server, runner]
    except Stopped:
        pass
    finally:
        with uninterrupted():
            runner.stop()
            server.stop()


def _environments(
    host: str, port: int, url: str, public_url: str, auth_string: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the environments of the server and of the runner.

    Fixed settings win over the variables of this process, and these over defaults.
    """
    own = ("PREFECT_API_URL", TEMPORARY, SERVER_AUTH, CLIENT_AUTH)
    inherited = {key: value for key, value in os.environ.items() if key not in own}
    common = {**_DEFAULTS, **inherited, "PYTHONUNBUFFERED": "1"}
    server = {
        "PREFECT_SERVER_UI_API_URL": f"{public_url}/api",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        **common,
        "PREFECT_SERVER_API_HOST": host,
        "PREFECT_SERVER_API_PORT": str(port),
        SERVER_AUTH: auth_string,
        CLIENT_AUTH: auth_string,  # its own services are clients, too
        ORIGINS: ",".join(own_origins(host, port, public_url)),
    }
    runner = {
        RUNS_URL: f"{public_url}{FILES}",
        **common,
        "PREFECT_API_URL": f"{url}/api",
        CLIENT_AUTH: auth_string,
    }
    return server, runner


@dataclass
class _Child:
    """A process that is started again when it dies."""

    name: str
    module: Sequence[str]
    environment: Mapping[str, str]
    fds: Sequence[int]
    stop_s: float
    _quick_deaths: int = 0

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", *self.module],  # -P: not from the current folder
            env=dict(self.environment),
            pass_fds=self.fds,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process, which ends them in order
        )

    def look(self) -> None:
        """Restart the process if it has died. Raises SeatrialError if the process does not
        stay up.
        """
        status = self._process.poll()
        if status is None:
            return
        quick = time.monotonic() - self._started < _QUICK_S
        self._quick_deaths = self._quick_deaths + 1 if quick else 0
        if self._quick_deaths >= _TRIES:
            raise SeatrialError.of("server-does-not-stay-up", name=self.name, status=status)
        print(
            f"{self.name} ended with status {status}; starting it again",
            file=sys.stderr,
            flush=True,
        )
        self._start()

    def stop(self) -> None:
        """End the process; if it does not end in time, kill it and its children."""
        self._process.terminate()
        try:
            self._process.wait(self.stop_s)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
