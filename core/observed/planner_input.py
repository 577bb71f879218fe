"""What a plan is computed from beside the project and the request: all that was observed of one environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.model.names import TableName
from core.observed.deployment import ObservedDeployment
from core.observed.table_statistics import Headroom
from core.policy.model import Policy


@dataclass(frozen=True, slots=True)
class PlannerInput:
    """One environment at one moment; what is left out is not known."""

    observed: Mapping[TableName, ObservedDeployment] = field(default_factory=dict)
    """A table that is not there is absent."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Spark's, to the questions of earlier plans."""
    headroom: Headroom | None = None
    policy: Policy | None = None
    """What is recorded to be in force; None is what the project declares."""
