"""Relocation of a jar: all of its classes move to a package that is named after the content of the jar.

Class loaders of Spark do not keep two contents of one class apart: an executor's loader for a session has as its parent
that of another session, if its thread has run a task of that one before, and parents come first (4.2.0). A class whose
name contains the hash of its jar can have no other content, whatever loader finds it.
"""

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping

from core.sql.java_classes import LITERAL, OF_LAMBDAS, SIZES, TEXT, TWO_SLOTS, DamagedClass, used_constants

LARGEST_UNPACKED = 64 * 1024 * 1024
"""Maximum number of bytes of all files of a jar together."""
UNREADABLE = (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, OverflowError, ValueError, struct.error)
"""What a damaged zip file raises."""

_VERSION = 2
"""Must increase when the same jar is relocated differently, because a server may have the earlier classes."""
_TYPE = re.compile(rb"L([^;<>()\[:.]+)(?=[;<])")
"""Matches the name of a class in a descriptor or a generic signature."""
_LONGEST = 0xFFFF
_SERVICES = "META-INF/services/"
_OF_JAVA_VERSIONS = "META-INF/versions/"
_ENCRYPTED = 0x1
_OF_SCALA = "scala/"
"""Beginning of the paths of Scala's own library, with which Spark passes values."""


class UnusableJar(ValueError):
    """Raised for a jar that cannot be relocated; the text continues a sentence that begins with the jar's name."""

    def __init__(self, reason: str, remedy: str = "build it again") -> None:
        super().__init__(reason)
        self.reason, self.remedy = reason, remedy


def relocated_package(sha256: str) -> str:
    """Return the package to which the classes of a jar with this hash move; other contents have other packages."""
    return f"headgate{_VERSION}_{sha256[:32]}"


def relocated_jar(content: bytes, sha256: str) -> bytes:
    """Return a jar with all files of another in the package of its hash. Equal jars give equal bytes.

    Names of classes change wherever class files refer to classes, but not in literals such as that of `Class.forName`,
    except those of annotations, and those with which javac's code recognizes serializable lambdas. The library of
    Scala, and what describes the jar itself in META-INF, are left out, except services of interfaces in the jar.
    Raises UnusableJar for every jar that cannot be relocated.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as opened:
            check_files(opened)
            return _relocated(opened, relocated_package(sha256))
    except UnusableJar:
        raise
    except UNREADABLE as error:
        raise UnusableJar("is not a jar") from error


def check_files(opened: zipfile.ZipFile) -> None:
    """Raise UnusableJar for a jar whose list of files shows that it cannot be relocated."""
    if (size := sum(each.file_size for each in opened.infolist())) > LARGEST_UNPACKED:
        most = LARGEST_UNPACKED >> 20
        found = -(-size // (1 << 20))
        raise UnusableJar(f"has {found:,} MB when it is unpacked, and may have {most} MB", "build a smaller jar")
    for each in opened.infolist():
        name = each.filename
        if each.flag_bits & _ENCRYPTED:
            raise UnusableJar(f"contains the encrypted file {name}", "build it without encryption")
        if each.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            remedy = "build it with a tool for jars, such as Maven or jar"
            raise UnusableJar(f"contains {name} in a compression that Java does not read", remedy)
        if name.startswith(_OF_JAVA_VERSIONS) and name.endswith(".class") and not name.endswith("/module-info.class"):
            remedy = "build it without META-INF/versions, so that each class has one file"
            raise UnusableJar(f"contains {name}, a class for some versions of Java only", remedy)


def read_file(opened: zipfile.ZipFile, name: str) -> bytes:
    """Return a file of a jar, of which never more is unpacked than the list of files says. Raises UnusableJar."""
    try:
        size = opened.getinfo(name).file_size
        with opened.open(name) as file:
            found = file.read(size)
    except UNREADABLE as error:
        raise UnusableJar(f"contains {name}, which cannot be unpacked") from error
    if len(found) < size:
        raise UnusableJar(f"contains {name}, which cannot be unpacked")
    return found


def _relocated(opened: zipfile.ZipFile, package: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as written:
        names = sorted({name for name in opened.namelist() if not name.endswith("/") and not _is_left_out(name)})
        classes = {name[:-6] for name in names if name.endswith(".class") and not name.startswith("META-INF/")}
        own = {name.encode(): f"{package}/{name}".encode() for name in classes}
        for name in names:
            if name.startswith("META-INF/"):
                interface = name.removeprefix(_SERVICES)
                if name.startswith(_SERVICES) and interface.replace(".", "/") in classes:
                    moved = f"{_SERVICES}{package}.{interface}"
                    written.writestr(zipfile.ZipInfo(moved), _service(read_file(opened, name), classes, package))
                continue
            found = read_file(opened, name)
            if name.endswith(".class"):
                try:
                    found = _relocated_class(found, own)
                except DamagedClass as error:
                    raise UnusableJar(f"contains {name}, which cannot be relocated: {error}") from error
            written.writestr(zipfile.ZipInfo(f"{package}/{name}"), found)
    return made.getvalue()


def _is_left_out(name: str) -> bool:
    return name == "module-info.class" or name.startswith(_OF_SCALA)


def _service(content: bytes, classes: set[str], package: str) -> bytes:
    lines = (line.partition("#")[0].strip() for line in content.decode("utf-8", "replace").splitlines())
    return "".join(
        f"{package}.{line}\n" if line.replace(".", "/") in classes else f"{line}\n" for line in lines if line
    ).encode()


def _relocated_class(content: bytes, own: Mapping[bytes, bytes]) -> bytes:
    """Return a class file whose texts name the relocated classes. Everything else refers to these texts by number.

    Literals of strings refer to texts too, which may be those of types. They get copies of the former texts.
    """
    try:
        constants, end = _constants(content)
        texts = {index: each[3:] for index, each in constants.items() if each[0] == TEXT}
        moved = {index: new for index, text in texts.items() if (new := _moved(text, own)) != text}
        if any(len(new) > _LONGEST for new in moved.values()):
            raise DamagedClass("it has a type that is too long")
        literals = {
            index: text
            for index, each in constants.items()
            if each[0] == LITERAL and (text := int.from_bytes(each[1:])) in moved
        }
        if literals and OF_LAMBDAS.encode() in texts.values():
            of_lambdas, of_others = used_constants(content)
            if literals.keys() & of_lambdas & of_others:
                raise DamagedClass("its serializable lambdas and its other code have the same text of a class")
            literals = {index: text for index, text in literals.items() if index not in of_lambdas}
    except (struct.error, IndexError, KeyError) as error:
        raise DamagedClass("it is no class file") from error
    (count,) = struct.unpack_from(">H", content, 8)
    copied = sorted(set(literals.values()))
    if count + len(copied) > _LONGEST:
        raise DamagedClass("it has too many constants")
    copies = {text: count + number for number, text in enumerate(copied)}
    written = [
        _text(moved[index]) if index in moved
        else struct.pack(">BH", LITERAL, copies[literals[index]]) if index in literals
        else each
        for index, each in constants.items()
    ]  # fmt: skip
    written += (_text(texts[text]) for text in copied)
    return b"".join((content[:8], struct.pack(">H", count + len(copied)), *written, content[end:]))


def _constants(content: bytes) -> tuple[dict[int, bytes], int]:
    """Return the constants of a class file by their numbers, with their tags, and the offset after them."""
    magic, count = struct.unpack_from(">I4xH", content)
    if magic != 0xCAFEBABE:
        raise DamagedClass("it is no class file")
    found, at, index = dict[int, bytes](), 10, 1
    while index < count:
        tag = content[at]
        size = 2 + struct.unpack_from(">H", content, at + 1)[0] if tag == TEXT else SIZES[tag]
        found[index] = content[at : at + 1 + size]
        if len(found[index]) <= size:
            raise IndexError(at)
        at += 1 + size
        index += 2 if tag in TWO_SLOTS else 1
    return found, at


def _moved(text: bytes, own: Mapping[bytes, bytes]) -> bytes:
    if new := own.get(text):
        return new
    return _TYPE.sub(lambda found: b"L" + own.get(found[1], found[1]), text) if b"/" in text else text


def _text(text: bytes) -> bytes:
    return struct.pack(">BH", TEXT, len(text)) + text
