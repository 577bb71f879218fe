"""The agent's log, bounded: a few files of a few megabytes, and what is printed goes into the newest as well."""

import os
from logging.handlers import RotatingFileHandler

MOST_BYTES = 8 << 20
KEPT = 3
"""Earlier files beside it: `agent.log.1`, the newest, to `agent.log.3`."""


class AgentLog(RotatingFileHandler):
    """Rotates by renaming, which a full disk takes too."""

    def __init__(self, path: str, *, most_bytes: int = MOST_BYTES) -> None:
        """Append to a log; `most_bytes` is the size at which a new file is begun."""
        super().__init__(path, maxBytes=most_bytes, backupCount=KEPT, encoding="utf-8")

    def doRollover(self) -> None:  # The name is logging's.
        """Begin a new file; standard output and errors, where whoever started the agent has put them here, follow."""
        # Not by its name, under which it may have been deleted.
        before = os.fstat(self.stream.fileno()) if self.stream is not None else None
        super().doRollover()
        for descriptor in (1, 2):
            if self.stream is not None and before is not None and os.path.samestat(os.fstat(descriptor), before):
                os.dup2(self.stream.fileno(), descriptor)
