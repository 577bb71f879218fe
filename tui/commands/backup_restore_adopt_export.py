"""The commands `backup`, `restore` and `adopt`, and `export`, which writes the input for planning elsewhere."""

import json
import os
import time
from pathlib import Path
from typing import Any

from core.model.errors import UsageError
from core.text.wording import counted, short_size
from tui.agent_client import agent_process
from tui.agent_client.agent_commands import equivalent_command
from tui.command_line.context import CommandContext
from tui.command_line.plan_lookup import login
from tui.project_folder.user_named_files import write_whole
from tui.services import planner_input_reader


def backup(context: CommandContext) -> int:
    """Write a verified copy of the ledger while the agent keeps running."""
    from state.backup import back_up

    output, into = context.output, Path(context.cwd, context.args.file)
    context.announce()
    size = back_up(Path(context.place.where.ledger), into)
    archives = _archives(into, context.place.where.ledger)
    older = [f"it does not contain older audit entries; also copy: {', '.join(map(str, archives))}"] if archives else []
    body = {"file": str(into), "bytes": size, "verified": True, "archives": list(map(str, archives))}
    output.answer(body, f"{into}: {short_size(size)}, verified", *older)
    return 0


def restore(context: CommandContext) -> int:
    """Replace the ledger with a backup. The old ledger is kept in the same folder."""
    from state.backup import restore as put_back

    place, file = context.place, Path(context.cwd, context.args.file)
    context.announce()
    with agent_process.no_agent(place):
        context.confirm(
            place.environment if place.protected else place.project,
            f"Replacing the ledger of {place.title} with {file}: it contains nothing done since the backup.",
        )
        done = put_back(
            file,
            Path(place.where.ledger),
            project_id=place.project_id,
            project=place.project,
            environment=place.environment,
            actor=login(),
            now=time.time(),
        )
    kept = str(done.kept) if done.kept else None
    missing = [str(path) for path in _archives(Path(place.where.ledger), place.where.ledger) if not path.exists()]
    said = [f"restored {file}; the environment is now at epoch {done.epoch}"]
    said += [f"the replaced ledger is kept as {kept}"] if kept else []
    said += [f"older audit entries are missing; put copies at: {', '.join(missing)}"] if missing else []
    context.answer({"restored": str(file), "kept": kept, "epoch": done.epoch, "missing": missing}, *said)
    return 0


def _archives(ledger: Path, place: str) -> list[Path]:
    from state.ledger import LedgerReader

    with LedgerReader(ledger) as reader:
        return [Path(place).with_name(archive.file) for archive in reader.audit_archives()]


def adopt(context: CommandContext) -> int:
    """Show why the environment is in doubt and what an adoption would change, ask for confirmation, and adopt it."""
    from core.plan.confirmation import confirmation_for_adoption

    place, output, client = context.place, context.output, context.operations.client
    context.announce()
    found = client.call("adoption")
    doubt = str(found.get("doubt") or "")
    if not doubt:
        context.answer({"doubt": "", "lines": [], "epoch": None}, "nothing is in doubt: there is nothing to adopt")
        return 0
    output.say("\n".join((doubt, "An adoption records the existing data as this ledger's own, as a new epoch:")))
    output.say("\n".join(f"  {line}" for line in found.get("lines", ())))
    text = confirmation_for_adoption(place.environment).text
    confirm = context.confirm(
        text, f"Adopting the existing data for {place.title}. Statements wanted running start at once.", op="adopt"
    )
    answer = client.call("adopt", confirm=confirm, line=equivalent_command(place, "adopt"))
    left = answer.get("left") or []
    context.answer(
        {"doubt": doubt, "lines": found.get("lines"), "epoch": answer.get("epoch"), "left": left},
        *(f"not adopted yet, run headgate adopt again later: {line}" for line in left),
        lines=[f"adopted as epoch {answer.get('epoch')}"],
    )
    return 0


ENDINGS = (".yml", ".yaml", ".json")


def export(context: CommandContext) -> int:
    """Write the input for `plan --observed` to stdout, or to a file whose extension selects the format."""
    from core.observed.document import planner_input_as_document
    from core.text.yaml_writer import as_yaml_with_blocks

    args, output = context.args, context.output
    ending = os.path.splitext(args.output)[1].lower() if args.output is not None else ""
    if args.output is not None and ending not in ENDINGS:
        raise UsageError(f"{args.output!r} has no known file extension", remedy=f"use one of {', '.join(ENDINGS)}")
    known = planner_input_reader.planner_input(context.operations.reader)
    document = planner_input_as_document(known, context.place.environment)
    if args.output is None and output.as_json:
        output.data(document)
    elif args.output is None:
        # Trailing empty lines of a text are part of the document.
        output.print(as_yaml_with_blocks(document)[:-1].split("\n"))
    else:
        write_whole(
            os.path.join(context.cwd, args.output),
            _as_json(document) if ending == ".json" else as_yaml_with_blocks(document),
        )
        output.say(f"{context.place.title}: {counted(len(known.observed), 'table')} written to {args.output}")
    return 0


def _as_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
