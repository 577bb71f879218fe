"""The number of generated cases that a test draws, depending on the Hypothesis profile."""

from hypothesis import settings


def examples(number: int) -> int:
    """Return a fifth of `number` by default, 80 % of it with `--hypothesis-profile=drill`, 100 times it with `long`."""
    return max(1, number * settings.default.max_examples // 100)
