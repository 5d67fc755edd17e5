"""A process that has imported what workers need, and forks them in a fraction of the time that a start takes.

Whoever opens it, and every process forked from there while it lives, can have workers made, who get the environment
and the import path of the one that asks. Between server and worker stands a warden: it tells how the worker ended, and
keeps the process id from being given to another until that is known.

On Linux only, and for workers on a CPU: CUDA does not outlive a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import IO, Any, NoReturn

from sparkdl.training.worker import call_process, main

PR_SET_PDEATHSIG = 1  # of linux/prctl.h
REQUEST_BYTES = 1 << 17  # most are of 5,000
ANSWER_SECONDS = 60.0
SERVER_NAME, WARDEN_NAME = "sparkdl-forks", "sparkdl-warden"
_PARSERS: dict[type, Callable[[str], Any]] = {bool: lambda text: text.lower() in ("1", "true"), int: int, float: float}

_server: socket.socket | None = None


class Forked:
    """A worker process, with that part of `subprocess.Popen` that its caller needs."""

    def __init__(self, pid: int, warden: socket.socket, stdin: IO[str], stdout: IO[str]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._warden = warden
        self._code: int | None = None

    def kill(self) -> None:
        """End the process if it runs still."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait until the process has ended: its exit code, or the number of the signal that ended it, negative."""
        if self._code is None:
            told = self._warden.recv(16)
            self._code = int(told) if told else -signal.SIGKILL  # of the warden as well
            self._warden.close()
        return self._code


def open_fork_server(environment: dict[str, str]) -> None:
    """Start the server, which ends with this process.

    Parameters
    ----------
    environment : dict
        Variables to set for it which programs read as they start, as glibc's malloc does: workers have what it has.
    """
    global _server
    if sys.platform != "linux":
        return
    _server, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with requests, contextlib.suppress(OSError):  # workers are started, where there is no server
        requests.set_inheritable(True)
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "sparkdl.launch.fork_server", str(requests.fileno()), str(os.getpid())],
            os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | environment,
            file_actions=[(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1)],
            setsid=True,  # Spark's daemon hangs up on its process group
        )


def fork_worker(directory: str, log: IO[bytes], environment: dict[str, str]) -> Forked | None:
    """Have a process forked that runs `sparkdl.training.worker`.

    Parameters
    ----------
    directory : str
        The worker's.
    log : file
        For what it prints.
    environment : dict
        Its whole environment.

    Returns
    -------
    Forked or None
        None where there is no server, it is gone, or it cannot fork.

    Raises
    ------
    OSError
        If the server does not answer in time.
    """
    if _server is None:
        return None
    request = json.dumps([directory, environment]).encode()
    if len(request) > REQUEST_BYTES:
        return None
    with contextlib.ExitStack() as undone:
        warden, wardens = (
            undone.enter_context(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        )
        (their_stdin, stdin), (stdout, their_stdout) = os.pipe(), os.pipe()
        streams = undone.enter_context(open(stdin, "w")), undone.enter_context(open(stdout))
        try:
            socket.send_fds(_server, [request], [their_stdin, their_stdout, log.fileno(), wardens.fileno()])
        except OSError:
            return None
        finally:
            os.close(their_stdin)
            os.close(their_stdout)
        wardens.close()
        warden.settimeout(ANSWER_SECONDS)
        try:
            told = warden.recv(16)
        except TimeoutError:
            raise OSError(f"No process was forked for a worker within {ANSWER_SECONDS:.0f} s.") from None
        if not told:
            return None
        warden.settimeout(None)
        undone.pop_all()
    return Forked(int(told), warden, *streams)


def _serve(requests: socket.socket, parent: int) -> None:
    """Fork a warden for every request, until nobody is left who could send one, or the process that opened it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # which has died before it could be said
        return
    call_process(SERVER_NAME)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for wardens
    # All that workers import; pandas is what Arrow looks for when it first gives NumPy's arrays.
    import pandas  # noqa: F401
    import pyarrow.pandas_compat  # noqa: F401

    import sparkdl.training.group.balance
    import sparkdl.training.group.joining
    import sparkdl.training.together  # noqa: F401

    gc.freeze()  # its pages stay shared
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 4)
        if not request:
            return
        with contextlib.suppress(OSError):  # the one who asks hears that nobody is there
            if os.fork() == 0:
                requests.close()
                _to_the_end(_watch, descriptors, *json.loads(request))
        for descriptor in descriptors:
            os.close(descriptor)


def _to_the_end(run: Callable[..., None], *arguments: Any) -> NoReturn:
    """Do what this process was forked for, and nothing of what the one it was forked off had still to do."""
    try:
        run(*arguments)
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


def _watch(descriptors: list[int], *request: Any) -> None:
    """Fork the worker, tell its process id, then how it ended, and wait until that is known."""
    call_process(WARDEN_NAME)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, conversation = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(conversation)
        _to_the_end(_work, streams, *request)
    for stream in streams:
        os.close(stream)
    with socket.socket(fileno=conversation) as asker, contextlib.suppress(BrokenPipeError):  # of one that is gone
        asker.send(b"%d" % pid)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        asker.send(b"%d" % (ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status))
        asker.recv(1)
    os.waitpid(pid, 0)


def _work(streams: list[int], directory: str, environment: dict[str, str]) -> None:
    """Become what `python -m sparkdl.training.worker` would be."""
    import jax

    os.setsid()
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    for text in (sys.stdout, sys.stderr):
        text.reconfigure(write_through=True)  # type: ignore[union-attr]
    changed = environment.items() - os.environ.items()
    os.environ.clear()
    os.environ.update(environment)
    for name, value in changed:
        if (option := name.lower()) in jax.config.values:  # which were read when JAX was imported
            jax.config.update(option, _PARSERS.get(type(jax.config.values[option]), str)(value))
    first = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = dict.fromkeys(filter(None, [*first, *sys.path]))
    importlib.invalidate_caches()
    main(directory)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
