"""`python -m seatrial`."""

from seatrial.cli.app import main

main()
