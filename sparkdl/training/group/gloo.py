"""What gloo, by which workers on CPUs exchange sums, is told beside its options: address, thread, sockets."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any

SEND_BYTES = 4 << 20  # Linux grants as much of it as net.core.wmem_max


def bind_gloo(address: str) -> None:
    """Have JAX make gloo's collectives at this address of the machine, and with a thread that gives way.

    gloo would take the address that the machine's own name means. `jax.distributed` has no option for it, and jaxlib's
    function that makes the collectives has: so JAX, which asks jaxlib for it by this name, is given one that knows.

    Raises
    ------
    RuntimeError
        jaxlib has no such function.
    """
    import jax
    from jaxlib import _jax, version

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    make = getattr(_jax, "make_gloo_tcp_collectives", None)
    if make is None:
        raise RuntimeError(
            f"jaxlib {version.__version__} has no make_gloo_tcp_collectives, by which workers are told their address; "
            "install a version of jax and jaxlib that sparkdl supports."
        )

    def make_at_address(distributed_client: Any, hostname: str | None = None, interface: str | None = None) -> Any:
        before = _threads()
        made = make(distributed_client=distributed_client, hostname=hostname or address, interface=interface)
        for thread in _threads() - before:
            _let_give_way(thread)
        return made

    _jax.make_gloo_tcp_collectives = make_at_address


def _threads() -> set[int]:
    try:
        return {int(name) for name in os.listdir("/proc/self/task")}
    except OSError:  # not on Linux
        return set()


def _let_give_way(thread: int) -> None:
    """Schedule a thread of this process in batch mode: it never interrupts another, and runs once that waits.

    gloo's thread reads what the others send. If it interrupts the one that is sending, which holds their lock, on the
    same core, it polls for that lock, at 100 % of the core, until its time is up: 4 ms instead of 0.2 for a sum over
    two processes of a core each.
    """
    with suppress(AttributeError, OSError):  # not on Linux, or a sandbox does not allow it
        os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


def widen_send_buffers() -> None:
    """Give every TCP socket of this process a send buffer that holds a message of an exchange.

    gloo leaves its sockets with the system's first guess, 16 KiB, which is raised only as the connection is used. Until
    then the rest of a larger message waits for the receiver's acknowledgement, which Linux delays by 40 ms: between two
    processes of one machine an all-reduce of 256 KiB took 44 ms instead of 0.5. gloo has no option for it.
    """
    with suppress(OSError):  # not on Linux: no list of open files, and other defaults
        for descriptor in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # closed since, as the list's own is
                if os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                    with socket.socket(fileno=os.dup(int(descriptor))) as opened:
                        if opened.type == socket.SOCK_STREAM and opened.family in (socket.AF_INET, socket.AF_INET6):
                            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
