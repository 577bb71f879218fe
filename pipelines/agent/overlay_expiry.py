"""The end of an overlay: once it has expired, its agent has the environment deleted with everything that it made."""

import logging
import os
import subprocess
import sys

from core.model.events import EventKind
from pipelines.agent.checked_clock import unmoved_now
from pipelines.agent.context import AgentContext
from state.overlay_files import read_overlay

log = logging.getLogger(__name__)

EVERY_S = 5.0
RETRY_S = 600.0
"""Seconds until another attempt, if the environment still exists after one."""


class OverlayExpiry:
    """Has an overlay deleted by `headgate down --purge` in a process of its own, which also ends this agent."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._next_at = 0.0
        self._purge: subprocess.Popen[bytes] | None = None

    def round(self) -> None:
        """Begin to delete the environment if it is an overlay that has expired. A changed clock does not end it."""
        overlay = read_overlay(self._agent.places.home)
        if overlay is None or unmoved_now(self._agent) < overlay.expires_at:
            return
        if self._purge is not None and self._purge.poll() is None:
            return
        now = self._agent.monotonic()
        if self._purge is not None:
            self._report_failure(self._purge)
        if now < self._next_at:
            return
        self._next_at = now + RETRY_S
        self._agent.record_completed_change(EventKind.AGENT, "the overlay has expired and is being deleted")
        self._agent.audit("headgate", "expire", self._agent.layout.environment.name)
        self._purge = self._begin()

    def _begin(self) -> "subprocess.Popen[bytes]":
        agent = self._agent
        words = ["--project", agent.folder, "--env", agent.layout.environment.name, "--confirm", agent.project]
        command = [sys.executable, "-I", "-m", "tui.cli", "down", "--purge", *words]
        log.info("the overlay has expired: %s", " ".join(command))
        with open(agent.places.agent_log, "ab") as output:
            return subprocess.Popen(
                command,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "TERM": "dumb"},
            )

    def _report_failure(self, purge: "subprocess.Popen[bytes]") -> None:
        self._purge = None
        code = purge.returncode
        self._agent.event(
            EventKind.AGENT, f"the expired overlay was not deleted (exit code {code}): headgate logs agent shows why"
        )
