"""What a package may do to its users."""

raise SystemExit("this package is broken")
