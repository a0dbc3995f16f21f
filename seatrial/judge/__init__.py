"""From measurements to verdicts: baselines, fleet statistics, repeats."""
