"""The check `devices`: every GPU, or the processors of nodes without GPUs, measured and searched
for wrong results.
"""
