"""Localisation in a run (step.py) and from logs that exist (logs.py); the model is
seatrial/localize.
"""
