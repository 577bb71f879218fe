"""The command `export`: what is known of an environment, as a document that a plan can be computed from elsewhere."""

import json
import os
from typing import Any

from core.model.errors import UsageError
from core.text.wording import counted
from tui.command_line.context import CommandContext
from tui.project_folder.user_named_files import write_whole
from tui.services import planner_input

ENDINGS = (".yml", ".yaml", ".json")


def export(context: CommandContext) -> int:
    """Write what `plan --observed` reads: to a file in the form that its name says, else to stdout."""
    from core.observed.document import planner_input_as_document
    from core.text.yaml_writer import as_yaml_with_blocks

    args, voice = context.args, context.voice
    ending = os.path.splitext(args.output)[1].lower() if args.output is not None else ""
    if args.output is not None and ending not in ENDINGS:
        raise UsageError(
            f"the ending of {args.output!r} does not tell the format", remedy=f"use one of {', '.join(ENDINGS)}"
        )
    known = planner_input.planner_input(context.operations.reader)
    document = planner_input_as_document(known, context.place.environment)
    if args.output is None and voice.as_json:
        voice.data(document)
    elif args.output is None:
        # A text's own empty lines at the end of the document are part of it.
        voice.print(as_yaml_with_blocks(document)[:-1].split("\n"))
    else:
        write_whole(
            os.path.join(context.cwd, args.output),
            _as_json(document) if ending == ".json" else as_yaml_with_blocks(document),
        )
        voice.say(f"{context.place.title}: {counted(len(known.observed), 'table')} written to {args.output}")
    return 0


def _as_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
