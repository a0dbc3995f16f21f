"""Which of many series have become lower, and since when: numpy arrays in, numpy arrays out."""
