"""Numbers as reasons print them: short, and exact enough to check by hand."""


def short(value: float) -> str:
    """Four significant digits, never in powers of ten where a plain number does."""
    return f"{value:.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
