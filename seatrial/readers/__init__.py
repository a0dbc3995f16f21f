"""Output of other tools than nccl-tests: the parts of a text, and a reader for each kind of
part.
"""
