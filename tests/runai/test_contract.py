"""What every platform promises, on RunAI: the tests of tests/contract, on nodes that the stand-in
makes.
"""

from tests.contract.promises import Promises


class TestPromises(Promises):
    """What every platform promises."""
