"""Facts about the machine on which a benchmark runs."""

import os
import platform
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

from pipelines.local_pool.java_and_spark import find_java


def machine_facts(folder: str) -> dict[str, Any]:
    """Return cores, memory, versions and load, and the disk that contains `folder`. Sizes are in bytes."""
    disk = shutil.disk_usage(folder)
    return {
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": find_java().version,
        "spark": metadata.version("pyspark"),
        "disk_kind": _kind_of_disk(folder),
        "disk_free": disk.free,
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _kind_of_disk(folder: str) -> str:
    """Return the file system of a folder; empty if unknown."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return ""
    place = os.path.realpath(folder)
    inside = [each for each in mounts if place == each[1] or place.startswith(each[1].rstrip("/") + "/")]
    return max(inside, key=lambda each: len(each[1]))[2] if inside else ""
