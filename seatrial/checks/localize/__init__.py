"""Localization in a run (step.py) and from existing logs (logs.py); the model is
seatrial/localize.
"""
