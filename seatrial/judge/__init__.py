"""From measurements to verdicts: what is known, numbers in words, votes, findings."""
