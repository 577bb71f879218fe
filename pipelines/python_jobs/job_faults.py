"""Faults of a job, found while its plan is built or checked, and the errors of a start that they become."""

from core.model.errors import JOB_ERRORS, EngineRefused
from core.text.sentence import Fact, FactKind

_ROWS_ONLY = (
    "a job only describes its rows: it cannot run actions (count, collect, write), spark.sql() or spark.udf.register()"
)
_SANDBOX = (
    "while its plan is built, a job can only read its packages and write to its temporary folder; it cannot start "
    "processes or open connections"
)


class JobFault(FactKind):
    """A reason why a job cannot be started; the name is the end of the error class."""

    SYNTAX = "{file}, line {line}: the code does not compile: {message}", "correct the code"
    NO_FUNCTION = "{file} defines no function {function}", "define it"
    IMPORT = "{file}, line {line}: there is no module {module}", "add its package to requirements: in the yml"
    RAISED = "{file}, line {line}: {type}: {message}", "correct the code"
    DENIED = "{file}, line {line}: {type}: {message}", _SANDBOX
    ACTION = "{file}, line {line}: the job asks Spark for {call}", _ROWS_ONLY
    NO_FRAME = "{function} in {file} returns {type}", "return one streaming DataFrame"
    BATCH = "{function} in {file} returns a batch DataFrame", "read one of its inputs as a stream"
    COLUMN_MISSING = "{function} in {file} returns no column {column}, which the DDL declares", "correct one of them"
    COLUMN_EXTRA = (
        "{function} in {file} returns a column {column}, which the DDL does not declare",
        "correct one of them",
    )
    COLUMN_TYPE = (
        "{function} in {file} returns {column} as {type}, and the DDL declares {declared}",
        "correct one of them",
    )
    COLUMN_TWICE = "{function} in {file} returns two columns {column}", "select each column once"
    UNUSED = "{function} in {file} does not use {parameter}", "remove this parameter, or use it"
    USED_TWICE = "{function} in {file} uses {parameter} twice", "use each stream once; Spark would read it twice"
    ORDER = "{function} in {file} reads {first} before {second}", "list its parameters in the order of {order:and}"
    OWN_STREAM = (
        "{function} in {file} reads a stream of its own before {parameter}",
        "read streams of your own after all parameters, for example on the right side of a join or union",
    )
    TABLE = "{function} in {file} reads {table}, which is not one of its parameters", "add a parameter for it"
    NODE = "the plan of {file} contains {node}, which a streaming query cannot have", _ROWS_ONLY
    DEEP = (
        # Protobuf decodes a hundred nested messages, two for each step; with a higher limit, it can crash.
        "the plan of {file} has more than 49 steps in a row",
        "compute several columns in one select() or withColumns()",
    )
    LARGE = (
        "the plan of {file} is larger than {limit:size}",
        "put large constant data into a table, and read that as a parameter",
    )
    MEMORY = "{file} needs more than {limit:size} of memory while its plan is built", "build smaller values"
    TIME = "{file} has not returned within {limit:duration}", "a job only describes its rows, and must return at once"
    OUTPUT = "{file} prints more than {limit:size} while its plan is built", "remove the output"
    REQUIREMENTS = "the requirements of {file} cannot be installed: {message}", "correct requirements: in the yml"
    FOLDER = (
        "the requirements of {file} cannot be installed in {folder}: {why}",
        "free some disk space, or make the folder writable",
    )
    REMOTE = (
        "the pool of {file} runs elsewhere, where its requirements cannot be installed",
        "install them there and where the agent runs, and remove requirements: from the yml",
    )
    ENDED = "{file} ended its process ({how}) before its function returned", "see {log}"

    @property
    def error_class(self) -> str:
        return f"{JOB_ERRORS}{self.name}"


def job_refused(fact: Fact[JobFault]) -> EngineRefused:
    """Return the error of a start that a fault prevents."""
    return EngineRefused(str(fact), remedy=str(fact.remedy or ""), error_class=fact.kind.error_class)
