"""How a worker's process becomes one of several that compute together, at the addresses by which they are known."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from jax.sharding import Mesh

from sparkdl.training.group.addresses import interface_of, join_port
from sparkdl.training.group.gloo import bind_gloo, widen_send_buffers

SHUTDOWN_SECONDS = 30
RETRY_SECONDS = 0.01
EXCLUDED = "no_grpc_proxy"  # hosts to which gRPC goes straight; else those of no_proxy


def join(rank: int, addresses: list[str], port: int, seconds: float) -> Mesh:
    """Meet the others, and give the mesh of all workers' devices, one each.

    Parameters
    ----------
    rank : int
    addresses : list of str
        The numeric address of every worker's machine.
    port : int
        Where rank 0's process has the coordinator listen.
    seconds : float
        How long to wait for the others.

    Raises
    ------
    RuntimeError
        There is no device of the wanted platform, or jaxlib cannot be told this machine's address.
    """
    import jax
    import numpy as np

    from sparkdl.training.exchanges.exchange import WORKERS
    from sparkdl.training.group.collectives import meet

    several = len(addresses) > 1
    if several:
        deadline = time.monotonic() + seconds
        _avoid_proxies(addresses)
        _take_interface(addresses[rank])
        coordinator = join_port(addresses[0], port)
        if rank:
            _await_coordinator(addresses[0], port, deadline)
        jax.distributed.initialize(
            coordinator,
            num_processes=len(addresses),
            process_id=rank,
            cluster_detection_method="deactivate",
            initialization_timeout=max(1, int(deadline - time.monotonic())),
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
            coordinator_bind_address=coordinator,
        )
    devices = [min(part, key=lambda device: device.id) for part in _by_process(_devices())]  # a worker drives one
    mesh = Mesh(np.array(devices), (WORKERS,))
    if several and mesh.devices.flat[0].platform == "cpu":
        meet(mesh)  # gloo opens its connections
        widen_send_buffers()
    return mesh


def _await_coordinator(address: str, port: int, deadline: float) -> None:
    """Wait until it listens, or the deadline is over: gRPC, if it comes too early, tries again only after a second."""
    while (left := deadline - time.monotonic()) > 0:
        try:
            socket.create_connection((address, port), timeout=left).close()
        except OSError:
            time.sleep(RETRY_SECONDS)
        else:
            return


def _avoid_proxies(addresses: list[str]) -> None:
    """Have gRPC, which obeys `http_proxy` and its like, go straight to the other workers; storage still obeys them."""
    import jax

    excluded = os.environ.get(EXCLUDED) or os.environ.get("no_proxy") or ""
    os.environ[EXCLUDED] = ",".join(dict.fromkeys([*filter(None, excluded.split(",")), *addresses]))
    jax.config.update("jax_check_proxy_envs", False)  # a warning of what is hereby mended


def _take_interface(address: str) -> None:
    """Have gloo and NCCL use the interface of this address; they would take that of the machine's name, or any."""
    bind_gloo(address)
    if interface := interface_of(address):
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")


def _devices() -> list[Any]:
    import jax

    try:
        return jax.devices()
    except Exception as error:
        platform = os.environ.get("JAX_PLATFORMS") or "any"
        if platform == "cpu":
            raise
        raise RuntimeError(
            f"JAX finds no device of the platform {platform!r} here ({type(error).__name__}: {error}); install "
            "sparkdl-jax[gpu] and the GPU's driver on every machine, or train on the CPU."
        ) from error


def _by_process(devices: list[Any]) -> list[list[Any]]:
    ranks = sorted({device.process_index for device in devices})
    return [[device for device in devices if device.process_index == rank] for rank in ranks]
