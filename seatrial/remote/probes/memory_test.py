"""Write patterns to nearly all memory of a device, read them back, and say where they differ.

`device` is one of processors.NumpyProcessors and torch_device.TorchDevice. Of processors a small part is tested: the
nodes of one machine share its memory, and ECC watches the rest.
"""

MULTIPLIER = -7046029254386353131  # odd: each word gets a value of its own, which shows lines that are mixed up
CONSTANTS = (0, -1, 0x5555555555555555, 0x2AAAAAAAAAAAAAAA - (1 << 63))  # no bit, all, every other, and those between
CHUNK_WORDS = 1 << 27  # 1 GiB
SLICE_WORDS = 1 << 24  # what is compared at once: the comparison needs memory too
PROCESSORS_WORDS = 1 << 23  # 64 MiB
SPARED_BYTES = 1 << 30  # of a GPU, for the comparison and for the library


def test(device, share):
    """{"tested_gb": number, "wrong": text}: `share` of what is free now."""
    chunks = allocated(device, words_to_test(device, share))
    tested = sum(map(len, chunks)) * 8 / 1e9
    for pattern in (*CONSTANTS, None):
        for number, chunk in enumerate(chunks):
            for start, part in slices(chunk):
                part[:] = expected(device, pattern, number, start, len(part))
        for number, chunk in enumerate(
            chunks
        ):  # after all was written: a word may have been written to another's place
            for start, part in slices(chunk):
                problem = difference(device, part, expected(device, pattern, number, start, len(part)))
                if problem:
                    return {"tested_gb": tested, "wrong": problem}
    return {"tested_gb": tested, "wrong": ""}


def words_to_test(device, share):
    if not device.gpu:
        return PROCESSORS_WORDS
    free = device.free_bytes()
    return max(min(int(free * share), free - SPARED_BYTES), 0) // 8


def allocated(device, words):
    """Chunks that hold so many words; fewer where the memory is not free in pieces of that size."""
    chunks, left = [], words
    while left > 0:
        chunk = device.empty_words(min(left, CHUNK_WORDS))
        if chunk is None:
            break
        chunks.append(chunk)
        left -= len(chunk)
    return chunks


def slices(chunk):
    for start in range(0, len(chunk), SLICE_WORDS):
        yield start, chunk[start : start + SLICE_WORDS]


def expected(device, pattern, number, start, count):
    """What the words are to hold; with pattern None a value of its own each."""
    if pattern is not None:
        return pattern
    return (device.indices(count) + (number * CHUNK_WORDS + start)) * MULTIPLIER


def difference(device, part, values):
    """Where and in how many bits the words differ from the values; "" where they do not."""
    bits = part ^ values
    wrong = device.cast(bits != 0, "int8")
    count = int(device.cast(wrong, "int64").sum())
    if not count:
        return ""
    first = int(wrong.argmax())
    flipped = bin(int(bits[first]) % (1 << 64)).count("1")
    address = device.address(part) + 8 * first
    return f"memory at {address:#x} differs from what was written in {flipped} of 64 bits; {count} words nearby differ"
