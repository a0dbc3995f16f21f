"""The cause of a failure from the text of a log: a table of what programs write, and a line-by-line search for it."""

from seatrial.causes.classify import Classifier, classify, telling, weight
from seatrial.causes.table import REASONS, Cause, Finding

__all__ = ["REASONS", "Cause", "Classifier", "Finding", "classify", "telling", "weight"]
