"""What a run keeps of a step whose work goes on beside it."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event

from core.observed.aligned_positions import AlignedPair
from core.validation.verdicts import CheckResult
from pipelines.agent.runs.version_comparison import VersionComparison


@dataclass(slots=True)
class OpenUpkeep:
    """One OPTIMIZE or VACUUM while its step is open."""

    tag: str
    work: "Future[None]" = field(default_factory=Future)
    ended: Event = field(default_factory=Event)
    """Set where nobody waits for it any more."""


@dataclass(slots=True)
class OpenValidation:
    """One validation while its step is open."""

    opened_at: float
    """Seconds of `AgentContext.monotonic`."""
    looked_at: float
    """When the files of the serving version were looked for last."""
    pair: AlignedPair | None = None
    work: "Future[tuple[CheckResult, ...]] | None" = None
    comparison: VersionComparison | None = None
