"""Class files and jars for tests, written without a compiler: functions that put a text before their argument."""

import io
import struct
import zipfile
from collections.abc import Sequence

from core.sql.java_classes import SIZES

UDF = "org/apache/spark/sql/api/java/UDF"
STRING = "Ljava/lang/String;"
OBJECT = "Ljava/lang/Object;"
_FIRST_JAVA = 44


class _Constants:
    def __init__(self) -> None:
        self._found: list[bytes] = []

    def add(self, content: bytes) -> int:
        if content not in self._found:
            self._found.append(content)
        return self._found.index(content) + 1

    def text(self, text: str) -> int:
        return self.add(b"\x01" + struct.pack(">H", len(text.encode())) + text.encode())

    def named(self, tag: int, text: str) -> int:
        return self.add(struct.pack(">BH", tag, self.text(text)))

    def cls(self, name: str) -> int:
        return self.named(7, name)

    def method(self, owner: str, name: str, kind: str) -> int:
        named = self.add(struct.pack(">BHH", 12, self.text(name), self.text(kind)))
        return self.add(struct.pack(">BHH", 10, self.cls(owner), named))

    def written(self) -> bytes:
        return struct.pack(">H", len(self._found) + 1) + b"".join(self._found)


def class_file(
    name: str,
    says: str = "",
    *,
    types: Sequence[str] = (STRING, STRING),
    java: int = 17,
    access: int = 0x21,
    constructor: str = "()V",
    interfaces: int = 1,
    of_lambdas: str = "",
) -> bytes:
    """Return a class that implements a UDF interface of Spark with these types, of its arguments and its result.

    Its result is `says` before the first argument; without `says`, each call ends with a ClassCastException.
    `of_lambdas` is a literal of the method that javac writes for serializable lambdas.
    """
    pool = _Constants()
    this, above = pool.cls(name.replace(".", "/")), pool.cls("java/lang/Object")
    interface = f"{UDF}{len(types) - 1}"
    implemented = [pool.cls(interface)] if interfaces else []
    signature = "Ljava/lang/Object;" + f"L{interface}<{''.join(types)}>;" * interfaces
    if says:
        code = (
            struct.pack(">BB", 0x12, pool.named(8, says))
            + (b"\x2b" if len(types) > 1 else b"\x01")
            + struct.pack(">BH", 0xB8, pool.method("java/lang/String", "valueOf", f"({OBJECT}){STRING}"))
            + struct.pack(">BH", 0xB6, pool.method("java/lang/String", "concat", f"({STRING}){STRING}"))
            + b"\xb0"
        )
    else:
        code = b"\x2b" + struct.pack(">BH", 0xC0, pool.cls("java/lang/Throwable")) + b"\xbf"
    made = b"\x2a" + struct.pack(">BH", 0xB7, pool.method("java/lang/Object", "<init>", "()V")) + b"\xb1"
    methods = [
        _method(pool, "<init>", constructor, made, 4),
        _method(pool, "call", f"({OBJECT * (len(types) - 1)}){OBJECT}", code, len(types)),
    ]
    if of_lambdas:
        loads = struct.pack(">BBB", 0x12, pool.named(8, of_lambdas), 0xB0)
        methods.append(_method(pool, "$deserializeLambda$", f"(Ljava/lang/invoke/SerializedLambda;){OBJECT}", loads, 1))
    attribute = struct.pack(">HIH", pool.text("Signature"), 2, pool.text(signature))
    body = struct.pack(">HHHH", access, this, above, len(implemented))
    body += b"".join(struct.pack(">H", each) for each in implemented)
    body += struct.pack(">HH", 0, len(methods)) + b"".join(methods) + struct.pack(">H", 1) + attribute
    return struct.pack(">IHH", 0xCAFEBABE, 0, java + _FIRST_JAVA) + pool.written() + body


def literals(content: bytes) -> list[str]:
    """Return the literals of strings in a class file, in the order of its constants."""
    (count,) = struct.unpack_from(">H", content, 8)
    found, texts, at, index = list[int](), dict[int, str](), 10, 1
    while index < count:
        tag, (number,) = content[at], struct.unpack_from(">H", content, at + 1)
        if tag == 1:
            texts[index] = content[at + 3 : at + 3 + number].decode("utf-8", "replace")
        elif tag == 8:
            found.append(number)
        at += 3 + number if tag == 1 else 1 + SIZES[tag]
        index += 2 if tag in (5, 6) else 1
    return [texts[each] for each in found]


def _method(pool: _Constants, name: str, kind: str, code: bytes, variables: int) -> bytes:
    content = struct.pack(">HHI", 2, variables, len(code)) + code + struct.pack(">HH", 0, 0)
    head = struct.pack(">HHHH", 1, pool.text(name), pool.text(kind), 1)
    return head + struct.pack(">HI", pool.text("Code"), len(content)) + content


def jar(**classes: bytes) -> bytes:
    """Return a jar with classes of the package `com.acme`, by their simple names. Equal classes give equal jars."""
    return archive({f"com/acme/{name}.class": content for name, content in classes.items()})


def archive(files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip file with these files, by path."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as opened:
        for path, content in files.items():
            opened.writestr(zipfile.ZipInfo(path), content, compression)
    return made.getvalue()


def changed_entry(content: bytes, offset: int, value: bytes) -> bytes:
    """Return a zip file of one file, whose entry in the list of files has another value at an offset."""
    at = content.rindex(b"PK\x01\x02") + offset
    return content[:at] + value + content[at + len(value) :]


def fmt_jar(says: str) -> bytes:
    """Return a jar with the class `com.acme.Fmt`, which puts a text before a STRING."""
    return jar(Fmt=class_file("com.acme.Fmt", says))


FMT = "CREATE FUNCTION fmt(x STRING) RETURNS STRING AS 'com.acme.Fmt' USING JAR 'acme.jar'\n"
"""Declares the function of `fmt_jar`."""
