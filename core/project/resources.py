"""Amounts of what statements share in a pool: how many run there, and the cores and memory that they need."""

from collections.abc import Iterator
from dataclasses import dataclass, fields


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


def memory_words(mib: float) -> str:
    """Return memory as a project file has it, for example `8g` or `640m`."""
    return f"{mib / 1024:g}g" if mib >= 1024 and mib % 1024 == 0 else f"{round(mib)}m"
