"""A child process that never outlives its parent, nor leaves children of its own behind.

Run as a file of its own, this is the small process between a parent and its child. It stops the
child when the parent is gone for whatever reason, `kill -9` included; and since it adopts the
child's orphans, it ends those too (an HTTP server's workers outlive their own parent otherwise).
Should this process itself be killed, the kernel kills the child.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

# Longer than any of our processes takes to finish what it has begun.
GRACE_SECONDS = 15.0
_POLL_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def start(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    inherited_descriptors: Sequence[int] = (),
    silent: bool = False,
) -> "subprocess.Popen[bytes]":
    """Start a command. `terminate()` asks it to stop and kills it after a time of grace.

    The process number is that of the process between; `number_of` tells the command's own.

    It gets a session of its own, so that Ctrl-C in a terminal reaches the parent alone, which can
    then stop its children in the right order.
    """
    # Isolated and without site-packages: it starts faster, and needs none of them.
    keeper = [sys.executable, "-I", "-S", __file__, str(os.getpid()), *map(str, command)]
    return subprocess.Popen(
        keeper,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if silent else None,
        env=None if environment is None else dict(environment),
        pass_fds=inherited_descriptors,
        start_new_session=True,
    )


def number_of(keeper: "subprocess.Popen[bytes]") -> int | None:
    """The process number of a started command itself, or None if it does not run."""
    return next(iter(_children(keeper.pid)), None)


class StopSignal:
    """Whether a person, or whoever runs us, asked us to stop."""

    def __init__(self) -> None:
        self.received = False

    def listen(self) -> None:
        """Take Ctrl-C, SIGTERM and a closed terminal for it, even where a shell ignores them."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._receive)

    def _receive(self, _number: int, _frame: FrameType | None) -> None:
        self.received = True


def adopt_orphans() -> None:
    """Become the parent of what a killed process between leaves behind; see `end_adopted`."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_adopted() -> None:
    """End what a process between left behind when it was killed, all generations of it.

    Without this an HTTP server's orphaned workers would go on holding its port.
    """
    own_session = os.getsid(0)
    found = True
    while found:
        found = False
        for process in _children(os.getpid()):
            # A process between leads its session; what it left is in a session without leader.
            if os.getsid(process) not in (process, own_session):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                found = True


def _keep(parent: int, command: list[str]) -> int:
    """Run the command until it ends or the parent does; the exit code as a shell gives it."""
    control = ctypes.CDLL(None).prctl
    control(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        control(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _become(command, keeper)
    deadline: float | None = None
    while True:
        caught = signal.sigtimedwait(_SIGNALS, _POLL_SECONDS)
        exit_code = _reap(child)
        if exit_code is not None:
            _end_orphans()
            return exit_code
        # The parent's death is seen by its number: a death signal would come when the *thread*
        # that started us ends, which is no reason to stop.
        asked = caught is not None and caught.si_signo != signal.SIGCHLD
        if deadline is None and (asked or os.getppid() != parent):
            os.kill(child, signal.SIGTERM)
            deadline = time.monotonic() + GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)


def _become(command: list[str], keeper: int) -> None:
    """In the fork: turn into the command, unless the keeper died before its death was watched."""
    if os.getppid() != keeper:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is the point
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127)


def _reap(child: int) -> int | None:
    """Collect every process that ended; the child's exit code if it is among them."""
    exit_code = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return exit_code
        if ended == 0:
            return exit_code
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            exit_code = code if code >= 0 else 128 - code


def _end_orphans() -> None:
    """Kill and collect what the child left behind, all generations of it."""
    while True:
        for orphan in _children(os.getpid()):
            os.kill(orphan, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children(of: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # After the name in brackets, which may hold anything: the state, then the parent.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # It ended while we looked.
        if parent == of:
            found.append(int(entry.name))
    return found


if __name__ == "__main__":
    sys.exit(_keep(int(sys.argv[1]), sys.argv[2:]))
