"""What ssh prints when it cannot log in to a host, as reasons."""

import re
from collections.abc import Callable
from pathlib import Path

from seatrial.model.reason import Reason, code_of
from seatrial.text.printable import printable

# In the words of OpenSSH 7 to 10, which are the same in every language.
_UNKNOWN = re.compile(r"No (\S+) host key is known for (\S+) and you have requested strict checking")
_CHANGED = re.compile(r"Host key for (\S+) has changed and you have requested strict checking")
_REVOKED = re.compile(r"host key for (\S+) is marked as revoked", re.IGNORECASE)
_OFFENDING = re.compile(r"Offending \S+ key in (.+?):(\d+)")
_REFUSED = re.compile(r"Permission denied \(([a-z0-9,@.-]+)\)")
_SILENT = re.compile(
    r"Connection timed out|Connection refused|No route to host|Network is unreachable|Could not resolve hostname"
    r"|Operation timed out|Name or service not known|timed out during banner exchange"
)
_BEFORE_THE_LOGIN = (
    "baremetal-unreachable",
    "baremetal-login-refused",
    "baremetal-host-key-unknown",
    "baremetal-host-key-changed",
    "baremetal-host-key-revoked",
)
_LOST = re.compile(
    r"Connection (?:closed|reset)|Broken pipe|closed by remote host|Timeout, server \S+ not responding|^\s*$"
)
_SHOWN = 300

Options = Callable[[], dict[str, str]]


def reason_of(host: str, errors: str, options: Options) -> Reason:
    """Why a login failed. `options()` is the configuration of ssh for the host, as `ssh -G` prints it."""
    if reason := _about_host_key(host, errors, options):
        return reason
    if match := _REFUSED.search(errors):
        user = printable(options().get("user", "?"))
        return Reason.of("baremetal-login-refused", host=host, user=user, methods=printable(match[1]))
    words = printable(_last_words(errors))[:_SHOWN]
    if _SILENT.search(errors):
        return Reason.of("baremetal-unreachable", host=host, problem=words)
    code = "baremetal-connection-lost" if _LOST.search(errors) else "baremetal-ssh-failed"
    return Reason.of(code, host=host, problem=words)


def _about_host_key(host: str, errors: str, options: Options) -> Reason | None:
    if match := _REVOKED.search(errors):
        return Reason.of("baremetal-host-key-revoked", host=host, place=_place(match[1]))
    if match := _CHANGED.search(errors):
        place, entry = _place(match[1]), _OFFENDING.search(errors)
        file = printable(entry[1]) if entry else _files(options())
        return Reason.of("baremetal-host-key-changed", host=host, place=place, file=file)
    if match := _UNKNOWN.search(errors):
        return Reason.of("baremetal-host-key-unknown", host=host, place=_place(match[2]), file=_files(options()))
    return None


def is_silent(reason: str) -> bool:
    """Whether the host did not answer, or its answer broke off, as with a broken machine."""
    return code_of(reason) in ("baremetal-unreachable", "baremetal-connection-lost")


def was_never_in(reason: str) -> bool:
    """Whether there was no login at all, so that nothing can have been started on the host."""
    return code_of(reason) in _BEFORE_THE_LOGIN


def _place(words: str) -> str:
    return printable(words)[:_SHOWN]


def _files(options: dict[str, str]) -> str:
    """The known_hosts files that ssh looks into."""
    own = options.get("userknownhostsfile", "~/.ssh/known_hosts").split()
    return printable(", ".join(str(Path(file).expanduser()) for file in own))


def _last_words(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if any(map(str.isalnum, line))]
    return "; ".join(dict.fromkeys(lines[-2:])) or "no message"
