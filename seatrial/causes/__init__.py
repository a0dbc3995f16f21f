"""The cause of a failure from the text of a log: a table of what programs write, and a line-by-line
search for it.
"""

from seatrial.causes.classify import Classifier, cause_in, classify, weight
from seatrial.causes.table import REASONS, Cause, Finding

__all__ = ["REASONS", "Cause", "Classifier", "Finding", "cause_in", "classify", "weight"]
