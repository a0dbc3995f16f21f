"""TCP streams between each doubtful node and its neighbours, once more."""

from collections.abc import Sequence
from functools import partial

from seatrial.checks.connectivity.findings import Findings
from seatrial.checks.connectivity.rates import Streams, measurements
from seatrial.checks.connectivity.reachability import Pair
from seatrial.checks.connectivity.roll_call import conclude_repeat
from seatrial.checks.connectivity.stages import plan_of, settings_of
from seatrial.checks.connectivity.throughput import explore_again, once_more
from seatrial.checks.contract import CheckContext
from seatrial.checks.repeated import Doubt, Repeated, TimeLeft, log_repeat
from seatrial.model.errors import NodesError
from seatrial.model.result import Suspect
from seatrial.model.verdict import Verdict
from seatrial.remote.node_setup import NodeConnection, set_up_node
from seatrial.remote.ssh import on_each
from seatrial.remote.streams import try_streams
from seatrial.text.words import some_of


def repeat_streams(context: CheckContext, doubts: Sequence[Doubt], repeated: Repeated, left: TimeLeft) -> None:
    """Between each doubtful node and the neighbours that it had the first time, both ways.

    A node or link that was slow the first time alone is not blamed any more.
    """
    run, testbed = context.run, context.testbed
    names = [node.name for node in testbed.nodes]
    doubtful = [name for name in names if any(d.measurement.subject.name == name for d in doubts)]
    if not doubtful:
        return
    log_repeat(f"TCP of {some_of(doubtful, 3)}", doubts)
    timeout_s, nth = settings_of(run).timeout_s, max(d.taken for d in doubts)
    plan = plan_of(run, testbed)
    planned = [pair for batch in once_more(plan, doubtful, nth) for pair in batch]
    needed = {name for pair in planned for name in pair}
    greeted = on_each(
        [node for node in testbed.nodes if node.name in needed], partial(set_up_node, testbed, timeout_s=timeout_s)
    )
    contacts = {name: answer for name, answer in greeted.items() if isinstance(answer, NodeConnection)}

    def measure(pairs: Sequence[Pair]) -> Streams:
        there = [pair for pair in pairs if contacts.keys() >= set(pair)]
        return {} if left.over else try_streams(testbed, contacts, there, timeout_s)

    try:
        streams = explore_again(plan, doubtful, nth, measure)
    except NodesError as floods:
        repeated.suspects += [Suspect("node", name, 1.0, why) for name, why in floods.evidence.items()]
        repeated.broke(Verdict.FAIL, str(floods))
        return
    finally:
        for contact in contacts.values():
            contact.transport.close()
    if findings := context.recall(Findings):
        findings.try_again(streams)
        repeated.check = findings.check()
    # Without the best of its neighbours a healthy node looks slow.
    lacking = {name for pair in planned if pair not in streams for name in pair}
    repeated.measurements += [m for m in measurements(streams) if m.subject.name not in lacking]
    if silent := [str(greeted[name]) for name in greeted if name not in contacts]:
        conclude_repeat(run, testbed, repeated, Verdict.INCONCLUSIVE, "; ".join(silent[:3]))
