"""A run as JUnit XML."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.report.junit import junit_xml
from tests import samples


@pytest.mark.parametrize("verdict", [each for each in Verdict if each is not Verdict.PASS])
def test_only_a_pass_is_a_test_that_passed(verdict: Verdict) -> None:
    good = samples.healthy_local()
    bad = Check("extra", verdict, 'slow "node-1" <&>\x1b[2J', 2.0)
    suite = ElementTree.fromstring(junit_xml(replace(good, verdict=verdict, checks=(*good.checks, bad))))
    kind = "error" if verdict in (Verdict.INCONCLUSIVE, Verdict.NOT_RUN) else "failure"
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [*(check.name for check in good.checks), "extra"]
    assert [len(case) for case in cases] == [*(0 for _ in good.checks), 1]
    assert (cases[-1][0].tag, cases[-1][0].get("type")) == (kind, verdict.value)
    assert (cases[-1][0].get("message") or "").startswith('slow "node-1" <&>')
    assert int(suite.get(f"{kind}s", "")) == int(suite.get("failures", "")) + int(suite.get("errors", "")) == 1
