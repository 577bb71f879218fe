"""Process of a job: runs the code confined, and writes the plan that it describes.

The agent runs this file by its path. It imports nothing of Headgate except `confinement.py` beside it, because it may
run in another environment.
"""

import base64
import importlib.util
import json
import os
import sys
import traceback
import types
from pathlib import Path
from typing import Any

FIRST_PLAN = 1 << 32
"""Id of the first node of a plan, so that no id equals one of the nodes that the agent adds."""
SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/ld.so.cache",
    "/etc/localtime", "/etc/ssl", "/dev/urandom", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat",
    "/sys/devices/system/cpu",
)  # fmt: skip
"""Paths of the system that libraries read."""
MESSAGE_LIMIT = 400
"""Maximum length of an error message, in characters."""


def main(folder: str) -> None:
    """Read `request.json` of a folder, build the plan, and write `result.json` there."""
    with open(f"{folder}/request.json", encoding="utf-8") as file:
        request = json.load(file)
    confinement = _load_confinement()
    confinement.die_with_parent(request["parent"])
    confinement.limit(request["limits"])
    sys.dont_write_bytecode = True
    sys.path[:0] = request["paths"]
    readable = (*SYSTEM, *filter(None, sys.path), sys.prefix, sys.base_prefix, sys.exec_prefix)
    lacking = confinement.confine(readable=readable, writable=(folder,), port=request["port"])
    try:
        result = _build(request, folder)
    except MemoryError:
        result = {"fault": "MEMORY"}
    _write(folder, result | {"unconfined": lacking})
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that the code started must not keep the process alive.
    os._exit(0)


def _load_confinement() -> Any:
    place = Path(__file__).with_name("confinement.py")
    spec = importlib.util.spec_from_file_location("headgate_confinement", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _write(folder: str, result: dict[str, Any]) -> None:
    with open(f"{folder}/result.part", "w", encoding="utf-8") as file:
        json.dump(result, file)
    os.replace(f"{folder}/result.part", f"{folder}/result.json")


def _build(request: dict[str, Any], folder: str) -> dict[str, Any]:
    file, function = request["file"], request["function"]
    try:
        code = compile(request["code"], file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        message = getattr(error, "msg", None) or str(error)
        return {"fault": "SYNTAX", "line": getattr(error, "lineno", None) or 0, "message": message[:MESSAGE_LIMIT]}
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import SQL, LogicalPlan

    spark = _session(request)
    # What cloudpickle finds in `__main__`, it pickles by value: Spark's workers cannot import the code.
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    LogicalPlan._nextPlanId = FIRST_PLAN
    # The time of the code counts from here: on a busy machine, the imports alone can take many seconds.
    Path(folder, "started").touch()
    try:
        exec(code, module.__dict__)
        made = getattr(module, function, None)
        if not callable(made):
            return {"fault": "NO_FUNCTION"}
        given = {name: DataFrame(SQL(f"SELECT * FROM {sql}"), spark) for name, sql in request["inputs"]}
        if request["spark"]:
            given["spark"] = spark
        frame = made(**given)
        if not isinstance(frame, DataFrame):
            return {"fault": "NO_FRAME", "type": type(frame).__name__}
        relation = frame._plan.plan(spark.client).SerializeToString()
        writer = b""
        if request["each_batch"]:
            from pyspark.serializers import CloudPickleSerializer

            serializer: Any = CloudPickleSerializer()
            writer = serializer.dumps(module.each_batch)
    except MemoryError:
        raise
    except BaseException as error:
        return _fault(error, file)
    return {"relation": base64.b64encode(relation).decode(), "each_batch": base64.b64encode(writer).decode()}


def _session(request: dict[str, Any]) -> Any:
    from pyspark.sql.connect.client.retries import RetryPolicy
    from pyspark.sql.connect.session import SparkSession

    class Never(RetryPolicy):
        def __init__(self) -> None:
            super().__init__(max_retries=0)

        def can_retry(self, exception: BaseException) -> bool:
            return False

    spark = SparkSession(connection=request["url"])
    spark.client.set_retry_policies([Never()])
    spark.client.disable_reattachable_execute()
    SparkSession._set_default_and_active_session(spark)
    return spark


def _fault(error: BaseException, file: str) -> dict[str, Any]:
    """Return an error of the code, with the last line of the code that was being executed."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    message = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    found = {"line": (lines or [0])[-1] or 0, "type": type(error).__name__, "message": message[:MESSAGE_LIMIT]}
    if isinstance(error, ModuleNotFoundError):
        return found | {"fault": "IMPORT", "module": str(error.name)}
    traceback.print_exception(error)
    if isinstance(error, PermissionError):
        return found | {"fault": "DENIED"}
    return found | {"fault": "RAISED"}


if __name__ == "__main__":
    main(sys.argv[1])
