"""Relocation of a jar: all of its classes move to a package that is named after the content of the jar.

Class loaders of Spark do not keep two contents of one class apart: an executor's loader for a session has as its parent
that of another session, if its thread has run a task of that one before, and parents come first (4.2.0). A class whose
name contains the hash of its jar can have no other content, whatever loader finds it.
"""

import io
import re
import struct
import zipfile

from core.sql.java_classes import SIZES, TEXT, TWO_SLOTS, DamagedClass

_VERSION = 1
"""Must increase when the same jar is relocated differently, because a server may have the earlier classes."""
_TYPE = re.compile(rb"L([^;<>()\[:.]+)(?=[;<])")
"""Matches the name of a class in a descriptor or a generic signature."""
_LONGEST = 0xFFFF
_SERVICES = "META-INF/services/"
_OF_SCALA = "scala/"
"""Beginning of the paths of Scala's own library, with which Spark passes values."""


def relocated_package(sha256: str) -> str:
    """Return the package to which the classes of a jar with this hash move; other contents have other packages."""
    return f"headgate{_VERSION}_{sha256[:32]}"


def relocated_jar(content: bytes, sha256: str) -> bytes:
    """Return a jar with all files of another in the package of its hash. Equal jars give equal bytes.

    Names of classes change wherever class files refer to classes, but not in texts such as that of `Class.forName`. The
    library of Scala, and what describes the jar itself in META-INF, are left out, except services of interfaces in the
    jar. Raises DamagedClass or BadZipFile.
    """
    package = relocated_package(sha256)
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as opened, zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as written:
        names = sorted({name for name in opened.namelist() if not name.endswith("/") and not _is_left_out(name)})
        classes = {name[:-6] for name in names if name.endswith(".class") and not name.startswith("META-INF/")}
        own = {name.encode(): f"{package}/{name}".encode() for name in classes}
        for name in names:
            if name.startswith("META-INF/"):
                interface = name.removeprefix(_SERVICES)
                if name.startswith(_SERVICES) and interface.replace(".", "/") in classes:
                    moved = f"{_SERVICES}{package}.{interface}"
                    written.writestr(zipfile.ZipInfo(moved), _service(opened.read(name), classes, package))
                continue
            found = opened.read(name)
            found = _relocated_class(found, own) if name.endswith(".class") else found
            written.writestr(zipfile.ZipInfo(f"{package}/{name}"), found)
    return made.getvalue()


def _is_left_out(name: str) -> bool:
    return name == "module-info.class" or name.startswith(_OF_SCALA)


def _service(content: bytes, classes: set[str], package: str) -> bytes:
    lines = (line.partition("#")[0].strip() for line in content.decode("utf-8", "replace").splitlines())
    return "".join(
        f"{package}.{line}\n" if line.replace(".", "/") in classes else f"{line}\n" for line in lines if line
    ).encode()


def _relocated_class(content: bytes, own: dict[bytes, bytes]) -> bytes:
    """Return a class file whose texts name the relocated classes. Everything else refers to these texts by number."""

    def moved(found: re.Match[bytes]) -> bytes:
        return b"L" + own.get(found[1], found[1])

    try:
        magic, count = struct.unpack_from(">I4xH", content)
        if magic != 0xCAFEBABE:
            raise DamagedClass("it is no class file")
        parts: list[bytes] = []
        at, start, index = 10, 0, 1
        while index < count:
            tag = content[at]
            if tag != TEXT:
                at += 1 + SIZES[tag]
                index += 2 if tag in TWO_SLOTS else 1
                continue
            (size,) = struct.unpack_from(">H", content, at + 1)
            text = content[at + 3 : at + 3 + size]
            new = own.get(text) or (_TYPE.sub(moved, text) if b"/" in text else text)
            if new != text:
                if len(new) > _LONGEST:
                    raise DamagedClass("it has a type that is too long to be relocated")
                parts += (content[start:at], struct.pack(">BH", TEXT, len(new)), new)
                start = at + 3 + size
            at += 3 + size
            index += 1
    except (struct.error, IndexError, KeyError) as error:
        raise DamagedClass("it is no class file") from error
    return b"".join((*parts, content[start:]))
