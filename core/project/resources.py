"""Amounts of what statements share in a pool: how many run there, and the cores and memory that they need."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from core.text.sentence import Fact, FactKind


@dataclass(frozen=True, slots=True)
class Amounts:
    """An amount in each dimension; None if it is not limited, or not declared."""

    statements: int | None = None
    cores: float | None = None
    mib: int | None = None
    """Memory in MiB."""

    def __iter__(self) -> Iterator[float | None]:
        """Yield the amounts in the order of `DIMENSIONS`."""
        return iter((self.statements, self.cores, self.mib))


DIMENSIONS = tuple(field.name for field in fields(Amounts))
"""The names of the dimensions, in order."""

UNLIMITED = Amounts()


@dataclass(frozen=True, slots=True)
class PoolClass:
    """The class of pools in any of which a statement may run, as `pool: {class: NAME}` declares it."""

    name: str


class Over(FactKind):
    """An amount that is more than a pool's capacity."""

    STATEMENTS = "{needed} of at most {most:statement}"
    CORES = "{needed} of at most {most} cores"
    MIB = "{needed} of at most {most} of memory"


def over_capacity(
    capacity: Amounts, needed: Iterable[float | None], before: Iterable[float] = (0, 0, 0)
) -> tuple[Fact[Over], ...]:
    """Return the dimensions in which amounts are more than a capacity, and more than they were before."""
    found = []
    for name, most, now, had in zip(DIMENSIONS, capacity, needed, before, strict=True):
        if most is not None and now is not None and now > max(most, had) + _EXACT:
            memory = name == "mib"
            shown, limit = (memory_words(now), memory_words(most)) if memory else (round(now, 2), most)
            found.append(_OVER[name].of(needed=shown, most=limit))
    return tuple(found)


_OVER = {"statements": Over.STATEMENTS, "cores": Over.CORES, "mib": Over.MIB}

_EXACT = 1e-6
"""Sums of fractions of cores are only this exact."""


def memory_words(mib: float) -> str:
    """Return memory as a project file has it, for example `8g` or `640m`."""
    return f"{mib / 1024:g}g" if mib >= 1024 and mib % 1024 == 0 else f"{round(mib)}m"
