"""What every platform promises, on bare metal: the tests of tests/contract, on hosts with sshd of
their own.
"""

from tests.contract.promises import Promises


class TestPromises(Promises):
    """What every platform promises."""
