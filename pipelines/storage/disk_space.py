"""How much space a file system has, where a folder is or will be."""

import os

from pipelines.storage.file_stream_logs import local_path


def disk_space(folder: str) -> tuple[int | None, int | None]:
    """Return bytes that are free to us, and all bytes; None where this machine does not know the folder."""
    place = local_path(folder)
    while not os.path.isdir(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    try:
        found = os.statvfs(place)
    except OSError:
        return None, None
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
