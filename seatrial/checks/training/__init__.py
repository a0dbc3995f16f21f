"""The check `training`: train a model over every rank; does it learn, do all ranks agree, who is
slow or hangs?
"""
