"""The mutants of a function: what is changed, and what is not."""

import ast

from scripts.mutants import mutants

SOURCE = '''
LIMIT = 3

def old_enough(age, names, on=True):
    """3 < 4"""
    if not on or age >= 5:
        return f"{age + 1} é" + "x"
    return [age - 1 for name in names if name in "ä"]
'''


def test_one_thing_is_changed_at_a_time_and_the_rest_of_the_file_stays() -> None:
    made = list(mutants("a.py", SOURCE.encode()))
    assert [(each.line, each.old, each.new) for each in made] == [
        (6, "not on or age >= 5", "(not on and age >= 5)"),
        (6, "not on", "(on)"),
        (6, "age >= 5", "(age > 5)"),
        (6, "5", "6"),
        (8, "age - 1", "(age + 1)"),
        (8, "1", "2"),
        (8, 'name in "ä"', "(name not in 'ä')"),
    ]
    for each in made:
        changed = each.apply(SOURCE.encode()).decode()
        ast.parse(changed)
        assert changed.replace(each.new, each.old) == SOURCE or each.new in ("(on)", "6", "2")
