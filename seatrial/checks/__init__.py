"""Checks: turn observations of the nodes into verdicts, measurements and suspects.

Nearly all of it is pure.
"""
