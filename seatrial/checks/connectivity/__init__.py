"""The check `connectivity`: nodes answer, reach each other, run MPI, have the same software and
carry traffic.
"""
