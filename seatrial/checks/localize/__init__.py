"""Localisation in a run (step.py) and from logs that exist (logs.py); the model is seatrial/localize."""

from seatrial.model.reason import Explanation, register

REASONS = {
    "localize-measured-again": Explanation(
        "measured again after the collectives: {found}",
        "The numbers of single nodes were fine at first, and are not when measured again after the collectives.",
        "Run `nvidia-smi -q -d CLOCK,TEMPERATURE` and `ibqueryerrors` on that part, and look for another process"
        " on its nodes.",
    ),
    "localize-budget-spent": Explanation(
        "stopped after {rounds} rounds: the {budget_s} s of budget_s are spent",
        "Another round of tests would not have ended in time.",
        "Raise `--budget` of the run, or `budget_s` of the suite.",
    ),
    "localize-nothing-measured": Explanation(
        "no test of a group of nodes could be measured in {rounds} rounds",
        "The head of each group could not be reached, or its tests did not end in time.",
        "Read `logs/localize-1-1.log`.",
    ),
}

register(REASONS)
