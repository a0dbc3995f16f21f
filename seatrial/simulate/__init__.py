"""A simulated fleet: readings with noise, faults in known places, and how the judge scores on
them.
"""
