"""What runs on the hosts themselves: the standard library of Python 3.6 alone.

The control host hands these modules to `python3 -` by standard input; see `program` in `hosts.py`.
"""
