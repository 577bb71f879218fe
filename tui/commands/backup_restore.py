"""Commands on the ledger as a file: backup and restore."""

import getpass
import os
import time
from pathlib import Path

from core.text.units import short_size
from tui.agent_client import agent_process
from tui.command_line.context import CommandContext


def backup(context: CommandContext) -> int:
    """Write a verified copy of the ledger; the agent goes on meanwhile."""
    from state.backup import back_up

    voice, into = context.voice, Path(context.cwd, context.args.file)
    context.announce()
    size = back_up(Path(context.place.where.ledger), into)
    archives = _archives(into, context.place.where.ledger)
    if voice.as_json:
        voice.data({"file": str(into), "bytes": size, "verified": True, "archives": list(map(str, archives))})
    else:
        voice.say(f"{into}: {short_size(size)}, verified")
        if archives:
            voice.say(f"older entries of the audit are not in it; copy as well: {', '.join(map(str, archives))}")
    return 0


def restore(context: CommandContext) -> int:
    """Put a backup in the place of the ledger, which stays beside it."""
    from state.backup import restore as put_back

    voice, place, file = context.voice, context.place, Path(context.cwd, context.args.file)
    context.announce()
    with agent_process.no_agent(place):
        context.confirm(
            place.environment if place.protected else place.project,
            f"Replacing the ledger of {place.title} with {file}: what was done since is not in it.",
        )
        done = put_back(
            file,
            Path(place.where.ledger),
            project_id=place.project_id,
            project=place.project,
            environment=place.environment,
            actor=_login(),
            now=time.time(),
        )
    kept = str(done.kept) if done.kept else None
    missing = [str(path) for path in _archives(Path(place.where.ledger), place.where.ledger) if not path.exists()]
    if voice.as_json:
        voice.data({"restored": str(file), "kept": kept, "epoch": done.epoch, "missing": missing})
    else:
        voice.say(f"restored {file}; the world epoch is {done.epoch} now")
        if kept:
            voice.say(f"the ledger that was replaced is {kept}")
        if missing:
            voice.say(f"older entries of the audit are missing; put copies there: {', '.join(missing)}")
    return 0


def _archives(ledger: Path, place: str) -> list[Path]:
    """List the files with older entries of the audit that a ledger expects beside its place."""
    from state.ledger import LedgerReader

    with LedgerReader(ledger) as reader:
        return [Path(place).with_name(archive.file) for archive in reader.audit_archives()]


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
