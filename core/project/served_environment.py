"""What an agent read of its environment in headgate.yml when it started.

An agent keeps its data folder and its names for as long as it runs, because everything deployed has them.
"""

from dataclasses import dataclass

from core.project.naming import Naming, Sources


@dataclass(frozen=True, slots=True)
class ServedEnvironment:
    """The data folder, names and pool with which the newest agent of an environment works or has worked."""

    data: str
    """Absolute path of the data folder."""
    naming: Naming
    sources: Sources
    pool: str = ""
    """The address of the pool without parameters, as in `Pool.address`."""
