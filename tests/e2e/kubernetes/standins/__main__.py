"""`python -m tests.e2e.kubernetes.standins NAME --kubeconfig FILE`: one stand-in, until standard
input ends.
"""

import argparse
import logging
import sys
from importlib import import_module
from pathlib import Path

from tests.e2e.kubernetes.standins import controller


def main() -> None:
    parser = argparse.ArgumentParser(prog="standins")
    parser.add_argument("name", help="of a module in this folder")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO, stream=sys.stdout)
    controller.run(
        import_module(f"tests.e2e.kubernetes.standins.{arguments.name}"), arguments.kubeconfig
    )


if __name__ == "__main__":
    main()
