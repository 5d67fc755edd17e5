"""The address and the port at which a worker can be reached by the others, and by which they bind it."""

from __future__ import annotations

import contextlib
import errno
import re
import socket
from collections.abc import Sequence

ANY_PORT = range(1)  # the system chooses
SIOCGIFADDR = 0x8915  # of linux/sockios.h


def split_host(address: str) -> str:
    """The host of "host:port", without the brackets of IPv6."""
    return without_brackets(address.rsplit(":", 1)[0])


def without_brackets(host: str) -> str:
    """A host without the brackets in which Spark gives IPv6 addresses."""
    return host.removeprefix("[").removesuffix("]")


def join_port(host: str, port: int) -> str:
    """ "host:port", with brackets for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def family_of(host: str) -> socket.AddressFamily:
    """The family of a numeric address."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def own_address(host: str, others: Sequence[str]) -> str:
    """The numeric address of this machine by which the machines of other workers reach it.

    Nothing is asked of the machine's own name, which on Debian and Ubuntu means 127.0.1.1. Where `host` is a name, its
    addresses are tried first: those that this machine has, that are no loopback, and from which the way to the others
    begins; then the address from which the system itself would set out to them.

    Parameters
    ----------
    host : str
        What Spark calls this machine: a name or an address.
    others : sequence of str
        What Spark calls the other machines; this one's name among them does not count.

    Returns
    -------
    str
        IPv4 or IPv6. A loopback address only if there are no other machines.

    Raises
    ------
    OSError
        This machine has no address by which the others could reach it.
    """
    peers = [peer for peer in dict.fromkeys(others) if peer != host]
    known = _addresses(host)
    if not peers:
        found = next((address for address in known if _is_own(address)), "127.0.0.1")
    else:
        there = [address for peer in peers for address in _addresses(peer)]
        chosen = (_source(address, own) for own in known for address in there)
        by_system = (_source(address) for address in there)
        found = next((own for own in [*chosen, *by_system] if own), "")
    if not found:
        raise OSError(
            f"{host} resolves to {', '.join(known) or 'no address'} on this machine, from which there is no way to "
            f"{', '.join(peers)}; give Spark's worker there the address by which other machines reach it, as in "
            "SPARK_LOCAL_IP=10.0.0.5."
        )
    return found


def interface_of(address: str) -> str | None:
    """The name of the network interface that has this address; None where the system does not tell (not Linux)."""
    with contextlib.suppress(OSError, ImportError):
        import fcntl

        if ":" in address:
            wanted = socket.inet_pton(socket.AF_INET6, address).hex()
            with open("/proc/net/if_inet6") as lines:
                return next((fields[5] for fields in map(str.split, lines) if fields[0] == wanted), None)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            for _, name in socket.if_nameindex():
                with contextlib.suppress(OSError):  # an interface without an address
                    told = fcntl.ioctl(asking, SIOCGIFADDR, name.encode()[:15].ljust(40, b"\0"))
                    if socket.inet_ntoa(told[20:24]) == address:
                        return name
    return None


def parse_ports(text: str) -> range:
    """The ports of "40000-40100" or "40000"; of "" `ANY_PORT`. ValueError for others."""
    if not text:
        return ANY_PORT
    found = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 0 < first <= last < 1 << 16:
        raise ValueError(
            f"sparkdl.ports must be two ports of 1 to 65535, the lower one first, as in 40000-40100, received {text!r}."
        )
    return range(first, last + 1)


def listen(host: str, ports: range) -> socket.socket:
    """A server on the first of these ports that nobody has on this address.

    Raises
    ------
    OSError
        All are taken, or this machine does not have that address.
    """
    server = _bind(host, ports, reuse=True)
    server.listen(socket.SOMAXCONN)
    return server


def reserve_port(host: str, ports: range) -> socket.socket:
    """A bound socket that keeps a port until a server that shares ports, as JAX's coordinator does, has taken it."""
    reservation = _bind(host, ports, reuse=False)
    # Not before it was bound, or the reservation of another fit could have had the same port.
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return reservation


def _bind(host: str, ports: range, reuse: bool) -> socket.socket:
    for port in ports:
        bound = socket.socket(family_of(host), socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
            bound.bind((host, port))
            return bound
        except OSError as error:
            bound.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES) or ports == ANY_PORT:
                raise OSError(error.errno, f"no port can be had on {host}: {error.strerror}") from None
    raise OSError(
        errno.EADDRINUSE,
        f"all ports of sparkdl.ports, {ports.start}-{ports.stop - 1}, are taken on {host}; give sparkdl.ports more, "
        "two for the first worker of a fit and one for each other that trains on a machine at a time",
    )


def _addresses(host: str) -> list[str]:
    """What a name resolves to, numbers first, each once; [] if to nothing."""
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


def _is_own(address: str) -> bool:
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.bind((address, 0))
        return True
    return False


def _source(target: str, own: str = "") -> str:
    """The address from which this machine would send to another, perhaps its `own`; "" for no way or a loopback."""
    with socket.socket(family_of(target), socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        if own:
            if family_of(own) != family_of(target):
                return ""
            probe.bind((own, 0))
        probe.connect((target, 9))  # sends nothing, but finds the way
        source = str(probe.getsockname()[0])
        return "" if source.startswith("127.") or source == "::1" else source
    return ""
