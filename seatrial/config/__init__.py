"""The files that a user writes, as models: cluster, suite, image, alerts."""
