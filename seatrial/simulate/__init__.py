"""A fleet that is not there: numbers with noise, faults in known places, and what the judge makes of them."""
