"""The commands `help` and `completion`."""

import difflib
import textwrap
from collections.abc import Iterator

from core.model.errors import UsageError
from tui.command_line.command_table import COMMAND_SPECS
from tui.command_line.context import CommandContext
from tui.command_line.parser import COLUMNS, overview, parse_line
from tui.project_folder import project_folder_reader
from tui.services.help_topics import help_topic, help_topics

BASH = """\
_headgate() {
    local word=${COMP_WORDS[COMP_CWORD]} i verb= up=
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
            --project|--env) ((i++)) ;;
            -*) ;;
            *) verb=${COMP_WORDS[i]}; break ;;
        esac
    done
    if [[ -z $verb ]]; then
        COMPREPLY=($(compgen -W "@VERBS@" -- "$word"))
        return
    fi
    case $verb in
        @TAKES@)
            [[ $word =~ ^[0-9]*\\+ ]] && up=${BASH_REMATCH[0]}
            COMPREPLY=($(compgen -P "$up" -W "$(headgate completion tables 2>/dev/null)" -- "${word#"$up"}")) ;;
        lineage|impact)
            compopt -o nospace
            case $verb$word in
                lineage-*) COMPREPLY=($(compgen -W "--up --down --json --format --svg --html" -- "$word")) ;;
                impact-*) COMPREPLY=($(compgen -W "--children --observed --json" -- "$word")) ;;
                *.*) COMPREPLY=($(compgen -W "$(headgate completion columns "${word%%.*}" 2>/dev/null)" -- "$word")) ;;
                *) COMPREPLY=($(compgen -W "$(headgate completion tables 2>/dev/null)" -- "$word")) ;;
            esac ;;
        health|inventory)
            case $verb$word in
                health-*) COMPREPLY=($(compgen -W "--fail-on --json" -- "$word")) ;;
                inventory-*) COMPREPLY=($(compgen -W "@KINDS@" -- "$word")) ;;
                *) COMPREPLY=($(compgen -W "$(headgate completion products 2>/dev/null)" -- "$word")) ;;
            esac ;;
        help) COMPREPLY=($(compgen -W "@TOPICS@" -- "$word")) ;;
        demo) COMPREPLY=($(compgen -W "settle change comment column filter window rename" -- "$word")) ;;
        policy) COMPREPLY=($(compgen -W "show apply approve" -- "$word")) ;;
        logs) COMPREPLY=($(compgen -W "agent pool" -- "$word")) ;;
        completion) COMPREPLY=($(compgen -W "bash zsh" -- "$word")) ;;
    esac
}
complete -o default -F _headgate headgate
"""

ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n" + BASH

NAMES = ("tables", "columns", "products")
KINDS = "--product --unused --single-reader --cross-product --json"
TAKES_TABLES = (
    "ls", "show", "peek", "lag", "report", "wait", "history", "schema", "events", "plan", "test", "delete", "rollback",
    "stop", "start", "restart",
)  # fmt: skip


def manual(context: CommandContext) -> int:
    """Print a help topic, the help of a command, or the list of topics."""
    topic = " ".join(context.args.topic)
    topics = help_topics()
    if not topic:
        context.output.print([*overview().split("\n"), *_wrapped(f"topics: {', '.join(topics) or 'none'}")])
        return 0
    if topic in topics:
        context.output.print(_wrapped(help_topic(topic)))
        return 0
    names = [
        name for spec in COMMAND_SPECS for name in (spec.name, *(f"{spec.name} {o.name}" for o in spec.subcommands))
    ]
    if topic in names:
        parse_line([*topic.split(), "--help"])
    near = difflib.get_close_matches(topic, [*topics, *names], n=1)
    remedy = f"did you mean `headgate help {near[0]}`?" if near else f"topics: {', '.join(topics) or 'none'}"
    raise UsageError(f"there is no topic {topic!r}", remedy=remedy)


def _wrapped(page: str) -> Iterator[str]:
    for number, paragraph in enumerate(page.strip("\n").split("\n\n")):
        if number:
            yield ""
        if paragraph.startswith((" ", "#")):
            yield from paragraph.splitlines()
        else:
            yield from textwrap.wrap(paragraph, COLUMNS, break_long_words=False, break_on_hyphens=False)


def completion(context: CommandContext) -> int:
    """Print a shell's completion script, or the table, product or column names that the script offers."""
    folder, table = context.place.folder if context.args.shell in NAMES else "", context.args.table
    if context.args.shell == "tables":
        context.output.print(entry.table for entry in project_folder_reader.declared_tables(folder))
        return 0
    if context.args.shell == "columns":
        context.output.print(f"{table}.{column}" for column in project_folder_reader.declared_columns(folder, table))
        return 0
    if context.args.shell == "products":
        context.output.print(sorted({entry.product for entry in project_folder_reader.declared_tables(folder)}))
        return 0
    topics = " ".join(help_topics())
    text = ZSH if context.args.shell == "zsh" else BASH
    text = text.replace("@VERBS@", " ".join(verb.name for verb in COMMAND_SPECS))
    text = text.replace("@TAKES@", "|".join(TAKES_TABLES)).replace("@TOPICS@", topics).replace("@KINDS@", KINDS)
    context.output.print(text.rstrip("\n").split("\n"))
    return 0
