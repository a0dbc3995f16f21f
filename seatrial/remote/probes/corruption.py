"""Look for silent corruption on one device: the same work repeated bit for bit, exact work checked, results digested.

`device` is one of processors.NumpyProcessors and torch_device.TorchDevice. Digests of two devices may be compared when
their model, library and `software()` are the same; then they are equal unless one of them computes wrongly.
"""

MULTIPLIER, OFFSET = -7046029254386353131, -4658895280553007687  # odd: of splitmix64, as signed 64 bit integers
WORD = 1 << 64


def search(device, rounds, fault=""):
    """{"digests": {dtype: 16 hexadecimal digits}, "wrong": text}. Each round has other data, the same on every device.

    `fault` is for tests: "wrong" changes a result the same way each time, "unstable" changes a repeat.
    """
    digests, wrong = dict.fromkeys(device.digest_dtypes, 0), ""
    for seed in range(rounds):
        wrong = wrong or exact_sums(device, seed) or exact_product(device, seed)
        for dtype in device.digest_dtypes:
            product, problem = repeated_product(device, dtype, seed, fault)
            wrong = wrong or (problem and f"{dtype}: {problem}")
            digests[dtype] = (digests[dtype] * (MULTIPLIER % WORD) + digest_of(device, product)) % WORD
    return {"digests": {dtype: f"{digest:016x}" for dtype, digest in digests.items()}, "wrong": wrong}


def repeated_product(device, dtype, seed, fault):
    """The product of two random matrices and its sums by row, and what differs when both are made again."""
    n = device.digest_size
    left, right = (device.cast(fractions(device, n * n, seed * 2 + side), dtype).reshape(n, n) for side in range(2))
    first, again = left @ right, left @ right
    if fault == "wrong":
        first[n // 2, n // 2] = again[n // 2, n // 2] = 0
    elif fault == "unstable":
        again[n // 2, n // 2] = 0
    if not device.same(first, again):
        return first, "the same product differs when it is repeated"
    if not device.same(first.sum(1), first.sum(1)):
        return first, "the same sum differs when it is repeated"
    return first, ""


def exact_product(device, seed):
    """What is wrong with a product of small integers, which float32 holds exactly in whichever order they are added.

    Checked without a second product: C x = A (B x), with integers in x, in 64 bit floating point.
    """
    n = device.digest_size
    left, right = (small_integers(device, n * n, seed * 2 + side).reshape(n, n) for side in range(2))
    product = device.cast(left, "float32") @ device.cast(right, "float32")
    weights = device.cast(1 + (device.indices(n) & 7), "float64")
    expected = device.cast(left, "float64") @ (device.cast(right, "float64") @ weights)
    equal = device.same(device.cast(product, "float64") @ weights, expected)
    return "" if equal else "a product of integers is not what it must be"


def exact_sums(device, seed):
    """What is wrong with sums of small integers."""
    n = device.digest_size
    numbers = small_integers(device, n * n, seed).reshape(n, n)
    sums = device.cast(device.cast(numbers, "float32").sum(1), "int64")
    return "" if device.same(sums, numbers.sum(1)) else "a sum of integers is not what it must be"


def mixed(device, count, seed):
    """That many pseudo-random 64 bit integers, the same on every device and with every library."""
    bits = (device.indices(count) + seed * count) * MULTIPLIER
    bits = bits ^ ((bits >> 32) & 0xFFFFFFFF)
    bits = bits * OFFSET
    return bits ^ ((bits >> 29) & 0x7FFFFFFFF)


def fractions(device, count, seed):
    """From -0.5 to 0.5 in steps of 2^-24, which float32 holds exactly."""
    return device.cast((mixed(device, count, seed) >> 20) & 0xFFFFFF, "float32") / (1 << 24) - 0.5


def small_integers(device, count, seed):
    """From -8 to 7: sums of 4096 products of two stay below 2^24."""
    return ((mixed(device, count, seed) >> 20) & 15) - 8


def digest_of(device, array):
    """A weighted sum of the elements' bits modulo 2^64: every weight is odd, so no single wrong element is missed."""
    words = device.words(array)
    return int((words * (mixed(device, len(words), 1) | 1)).sum()) % WORD
