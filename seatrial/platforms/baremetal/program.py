"""The program that a host is handed: the modules of `on_host`, and a request. Pure."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_PACKAGE = "seatrial.platforms.baremetal.on_host"
_MODULES = ("files", "lock", "processes", "container", "supervisor", "verbs")  # each imports only those before it
_LOADER = """\
import json, sys, types
for name, source in json.loads({modules!r}).items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
"""


def program(request: Mapping[str, object]) -> str:
    """For the standard input of `python3 -`. The request may hold keys: it is in no argument and no environment."""
    return f"{_modules()}module.main(json.loads({json.dumps(request)!r}))\n"


@cache
def _modules() -> str:
    folder = Path(__file__).with_name("on_host")
    sources = {f"{_PACKAGE}.{name}": (folder / f"{name}.py").read_text() for name in _MODULES}
    return _LOADER.format(modules=json.dumps(sources))
