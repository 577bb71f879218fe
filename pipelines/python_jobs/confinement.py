"""Confines the current process, on Linux: which files and addresses it can open, and which system calls it can make.

The process of a job loads this file by its path, so it imports nothing but the standard library.
"""

import ctypes
import os
import platform
import resource
import signal
from collections.abc import Iterable, Mapping

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
"""Numbers of Landlock's system calls, the same on all machines."""
_PATH_RULE, _PORT_RULE = 1, 2

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_BIND, _CONNECT = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2
_ACCESS_BITS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Number of bits of file access by the version of Landlock; newer versions have 16."""

_SET_DEATH_SIGNAL, _SET_SECCOMP, _NO_NEW_PRIVILEGES = 1, 22, 38
_FILTER_MODE = 2
"""Argument of _SET_SECCOMP with which a program decides about each system call."""

_MACHINE = "x86_64"
_AUDIT_X86_64 = 0xC000003E
_X32 = 0x40000000
"""Bit of the system calls of another interface of the same machine, which would bypass the filter."""
_CLONE, _CLONE3, _SOCKET, _PRLIMIT = 56, 435, 41, 302
_SIGNAL_TO_PROCESS = (62, 234)
"""kill and tgkill, which may only address this process."""
_THREAD = 0x10000
_REFUSED = (
    57, 58, 59, 322,  # New processes and programs: fork, vfork, execve, execveat.
    101, 310, 311, 200, 424, 434,  # Other processes: ptrace, process_vm_*, tkill, pidfd_*.
    90, 91, 268, 452, 92, 93, 94, 260,  # Modes and owners of files, which Landlock does not cover.
    132, 235, 261, 280, 188, 189, 190, 197, 198, 199,  # Times and attributes of files.
    165, 166, 161, 155, 272, 308, 428, 429, 430, 432, 442,  # Mounts, roots and namespaces.
    109, 112, 141, 203, 144, 142,  # Groups, sessions and priorities of processes.
    425, 426, 427, 321, 298, 323, 248, 249, 250,  # io_uring, bpf, perf, userfaultfd, keys.
    29, 30, 31, 64, 66, 68, 71, 240,  # Memory, semaphores and queues that other processes share.
    164, 227, 159, 163, 167, 168, 169, 170, 171, 175, 313, 176, 246, 320,  # The machine.
)  # fmt: skip
_LOAD, _RETURN, _AND = 0x20, 0x06, 0x54
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_EPERM, _EACCES, _EFAULT, _ENOSYS = 1, 13, 14, 38

_OF_LANDLOCK, _OF_SECCOMP = ("access to files", "connections"), ("new processes",)
_EVERYTHING = (*_OF_LANDLOCK, *_OF_SECCOMP)
"""What only Landlock and only a filter of system calls can prevent."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Rules(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("folder", ctypes.c_int32))


class _PortRule(ctypes.Structure):
    _fields_ = (("access", ctypes.c_uint64), ("port", ctypes.c_uint64))


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("first", ctypes.POINTER(_Instruction)))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, for example because the agent died.

    `parent` is the id of the agent's process, which may already be dead.
    """
    if hasattr(_libc, "prctl"):
        _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def limit(limits: Mapping[str, int]) -> None:
    """Set limits of this process by name: DATA, FSIZE and CORE in bytes, CPU in seconds, NOFILE in files.

    At the limit of CPU, the kernel sends SIGXCPU; one second later, or if both limits are equal, it sends SIGKILL.
    """
    for name, value in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value + 1 if name == "CPU" and value != hard else value))


def confine(*, readable: Iterable[str], writable: Iterable[str], port: int) -> tuple[str, ...]:
    """Leave this process only the given paths, and TCP connections to a port; return what this machine cannot prevent.

    Also prevents new processes, signals to other processes, and sockets other than TCP. Threads remain possible.
    """
    if not hasattr(_libc, "prctl"):
        return _EVERYTHING
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    lacking = _restrict_files(readable, writable, port)
    return (*lacking, *_filter_calls())


def unpreventable() -> tuple[str, ...]:
    """Return what `confine` could not prevent on this machine, without confining this process."""
    if not hasattr(_libc, "prctl"):
        return _EVERYTHING
    version = _landlock_version()
    lacking = _OF_LANDLOCK if version < 1 else () if version >= 4 else ("connections",)
    # A kernel with such filters finds that there is no program at this address.
    filters = _libc.prctl(_SET_SECCOMP, _FILTER_MODE, None, 0, 0) and ctypes.get_errno() == _EFAULT
    return lacking if filters and platform.machine() == _MACHINE else (*lacking, *_OF_SECCOMP)


def _restrict_files(readable: Iterable[str], writable: Iterable[str], port: int) -> tuple[str, ...]:
    version = _landlock_version()
    if version < 1:
        return _OF_LANDLOCK
    everything = (1 << _ACCESS_BITS.get(version, 16)) - 1
    rules = _Rules(
        everything,
        _BIND | _CONNECT if version >= 4 else 0,
        _ABSTRACT_SOCKETS | _SIGNALS if version >= 6 else 0,
    )
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _libc.syscall(_LANDLOCK_CREATE, ctypes.byref(rules), size, 0)
    if ruleset < 0:
        return _OF_LANDLOCK
    for paths, access in ((readable, _READ), (writable, everything & ~_EXECUTE)):
        for path in paths:
            _allow(ruleset, path, access & everything)
    _allow(ruleset, "/dev/null", (_READ_FILE | _WRITE_FILE | _TRUNCATE) & everything)
    if version >= 4:
        _libc.syscall(_LANDLOCK_ADD, ruleset, _PORT_RULE, ctypes.byref(_PortRule(_CONNECT, port)), 0)
    refused = _libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)
    if refused:
        return _OF_LANDLOCK
    return () if version >= 4 else ("connections",)


def _landlock_version() -> int:
    """Return the version of Landlock in this kernel; less than 1 if there is none."""
    version: int = _libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    return version


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= _OF_FILES
        _libc.syscall(_LANDLOCK_ADD, ruleset, _PATH_RULE, ctypes.byref(_PathRule(access, opened)), 0)
    finally:
        os.close(opened)


def _filter_calls() -> tuple[str, ...]:
    if platform.machine() != _MACHINE:
        return _OF_SECCOMP
    instructions = [_Instruction(*each) for each in _filter(os.getpid())]
    program = (_Instruction * len(instructions))(*instructions)
    first = ctypes.cast(program, ctypes.POINTER(_Instruction))
    failed = _libc.prctl(_SET_SECCOMP, _FILTER_MODE, ctypes.byref(_Program(len(instructions), first)), 0, 0)
    return _OF_SECCOMP if failed else ()


def _filter(pid: int) -> list[tuple[int, int, int, int]]:
    """Return the program that the kernel runs at each system call.

    The offsets are those of `struct seccomp_data`: 0 the number of the call, 4 the machine, 16 and 24 the arguments.
    """
    number, machine, first, second = 0, 4, 16, 24
    refuse, allow = (_RETURN, 0, 0, _ERROR | _EPERM), (_RETURN, 0, 0, _ALLOW)
    program = [
        (_LOAD, 0, 0, machine),
        (_EQUAL, 1, 0, _AUDIT_X86_64),
        refuse,
        (_LOAD, 0, 0, number),
        (_AT_LEAST, 0, 1, _X32),
        refuse,
        # glibc then starts threads with `clone`, whose flags a filter can see.
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _ERROR | _ENOSYS),
        (_EQUAL, 0, 4, _CLONE),
        (_LOAD, 0, 0, first),
        (_ANY_BIT, 0, 1, _THREAD),
        allow,
        refuse,
        (_EQUAL, 0, 8, _SOCKET),
        (_LOAD, 0, 0, first),
        # AF_INET and AF_INET6.
        (_EQUAL, 1, 0, 2),
        (_EQUAL, 0, 4, 10),
        (_LOAD, 0, 0, second),
        # SOCK_STREAM, without flags.
        (_AND, 0, 0, 0xF),
        (_EQUAL, 0, 1, 1),
        allow,
        (_RETURN, 0, 0, _ERROR | _EACCES),
    ]
    for call in _SIGNAL_TO_PROCESS:
        program += [(_EQUAL, 0, 4, call), (_LOAD, 0, 0, first), (_EQUAL, 0, 1, pid), allow, refuse]
    program += [(_EQUAL, 0, 4, _PRLIMIT), (_LOAD, 0, 0, first), (_EQUAL, 0, 1, 0), allow, refuse]
    for call in _REFUSED:
        program += [(_EQUAL, 0, 1, call), refuse]
    return [*program, allow]
