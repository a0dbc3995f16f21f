"""Each next step names an action: what to run, set or replace, and no riddle."""

import re

import pytest

from seatrial.runs.explanations import CATALOG

ACTS = frozenset((
    "accept", "add", "boot", "build", "change", "clean", "copy", "correct", "create", "cut", "disable", "drain",
    "end", "enlarge", "export", "free", "give", "grant", "install", "keep", "leave", "let", "limit",
    "log", "lower", "make", "mount", "move", "name", "open", "pass", "pin", "plug", "power-cycle", "push",
    "put", "raise", "reboot", "rebuild", "reinstall", "reload", "remove", "rename", "repeat", "replace",
    "report", "request", "reseat", "reset", "restart", "retry", "run", "set", "start", "stop", "submit",
    "sweep", "switch", "take", "turn", "uncordon", "unset", "update", "upgrade", "use", "wait",
))  # fmt: skip
LOOKS = frozenset(
    ("check", "compare", "count", "find", "follow", "look", "ping", "read", "see", "watch")
)
COMMAND = re.compile(
    r"`[^`]+`|(?<!\w)--?[a-z][\w-]*|(?<![\w/])/[a-z][\w./*-]+|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b|\b[a-z]+_[a-z_]+\b"
    r"|\b(?:dmesg|ibstat|perfquery|nvidia-smi|rocm-smi|amd-smi|mlxlink|journalctl|systemctl|sinfo|sacct|scontrol|fi_info"
    "|ibv_devices|ipmitool|ulimit|kubectl|py-spy|lspci|ip (?:addr|link|route|-s)|ss "
    r"-|getent|ssh|env|grep|df)\b"
)
RIDDLES = re.compile(
    "raw log(?!.*`)|do what|words ask|look (?:the message|that reason|it) up|earliest "
    "other|first other|take the step"
    r"|look at the (?:reason|cause)|(?:^|[.:] )the line says\b(?!.*`)",
    re.IGNORECASE,
)


def problem(step: str) -> str | None:
    """What is wrong with a next step, if anything."""
    if riddle := RIDDLES.search(step):
        return f"a riddle: {riddle[0]}"
    verbs = set(re.findall(r"[a-z]+(?:-[a-z]+)?", step.lower()))
    if verbs & ACTS or COMMAND.search(step):
        return None
    return "a look without a command" if verbs & LOOKS else "no action"


@pytest.mark.parametrize("code", sorted(CATALOG))
def test_a_next_step_names_an_action(code: str) -> None:
    step = CATALOG[code].next_step
    assert step is None or problem(step) is None, f"{problem(step)}: {step}"


@pytest.mark.parametrize("code", sorted(CATALOG))
def test_reasons_and_next_steps_name_no_file_of_the_repository(code: str) -> None:
    """An installed wheel has none of these files; `seatrial explain` adds the URL of the page."""
    entry = CATALOG[code]
    assert not re.search(
        r"\b(?:docs|deployments|tests|scripts|benchmarks)/", f"{entry.template} {entry.next_step}"
    )


@pytest.mark.parametrize(
    "step",
    [
        "Read the raw log, and the kernel's log on the nodes.",
        "Do what the words ask for, then submit the run again.",
        "another rank died first: look for the earliest other message",
        "look for the rank that does not answer",
        "the daemon's words have the reason",
        "Look at the reason of that step.",
    ],
)
def test_vague_next_steps_are_refused(step: str) -> None:
    assert problem(step)
