"""The programs that run on the hosts, in the standard library of Python 3.6.

The control host sends these modules to `python3 -` by standard input; see `program` in `hosts.py`.
"""
