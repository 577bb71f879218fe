"""The `desk` fixture: an agent's handler of submitted plans."""

from pathlib import Path

import pytest
from submission_desk import Desk, desk_in

from pipelines.agent.context import AgentContext


@pytest.fixture
def desk(agent: AgentContext, tmp_path: Path) -> Desk:
    return desk_in(agent, tmp_path)
