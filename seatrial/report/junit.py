"""A run as JUnit XML, which CI systems show as tests: one test case for each check. Pure."""

from xml.etree import ElementTree

from seatrial.model.result import RunResult
from seatrial.text.headline import lines
from seatrial.text.words import plain


def junit_xml(result: RunResult) -> str:
    """Return the document: `failure` for what was measured and is bad, `error` for what could not
    be measured.
    """
    bad = [check.verdict for check in result.checks if not check.passed]
    failures = sum(verdict.is_fault for verdict in bad)
    suite = ElementTree.Element(
        "testsuite",
        name=plain(f"seatrial.{result.cluster}.{result.suite}"),
        tests=str(len(result.checks)),
        failures=str(failures),
        errors=str(len(bad) - failures),
        time=f"{result.seconds:.1f}",
        timestamp=result.started.isoformat(timespec="seconds"),
    )
    for check in result.checks:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=suite.get("name", ""),
            name=plain(check.name),
            time=f"{check.seconds:.1f}",
        )
        if not check.passed:
            kind = "failure" if check.verdict.is_fault else "error"
            ElementTree.SubElement(
                case, kind, type=check.verdict.value, message=plain(check.reason)
            )
    ElementTree.SubElement(suite, "system-out").text = f"{result.run_id}: {lines(result)[0]}"
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
