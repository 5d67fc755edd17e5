"""One of the two workers of the exchange benchmark: joins the other as a worker of a fit does, steps and learns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contestants.exchange_link import Place, enter
from contestants.serve import Spec, Taker, Turn

WORKERS = 2
JOIN_SECONDS = 120


@dataclass(frozen=True)
class Seat:
    """What a worker is told in its settings.

    Attributes
    ----------
    rank : int
    namespace, address : str
        See `Place`.
    coordinator : str
        "host:port" of the first worker.
    cases : list of [str, str]
        Model and exchange of each, or "probe" and bytes.
    epochs : int
        To learn for.
    """

    rank: int
    namespace: str
    address: str
    coordinator: str
    cases: list[list[str]]
    epochs: int


def step(spec: Spec) -> Taker:
    """A turn is so many steps of each case; gives milliseconds and bytes of a step, bytes being one worker's.

    The cases of the model "probe" are all-reduces of that many bytes instead.
    """
    seat = Seat(**spec.settings)
    mesh = _joined(seat)
    from contestants.exchange_cases import Prober, Stepper

    def prepared(model: str, case: str) -> Any:
        if model == "probe":
            return Prober(int(case), mesh)
        return Stepper(model, case, mesh, seat.rank, Path(spec.folder), spec.steps, bool(seat.namespace))

    steppers = [prepared(*case) for case in seat.cases]
    for stepper in steppers:
        stepper.turn()  # the first does not count

    def take(steps: int) -> Turn:
        return {"steps": steps, "cases": [stepper.turn() for stepper in steppers]}

    return take


def learn(spec: Spec) -> Taker:
    """A turn trains every case from the start; gives accuracy on test rows, and milliseconds and bytes of a step."""
    seat = Seat(**spec.settings)
    mesh = _joined(seat)
    from contestants.exchange_cases import learned

    def take(steps: int) -> Turn:
        cases = [
            learned(model, exchange, mesh, seat.rank, Path(spec.folder), seat.epochs) for model, exchange in seat.cases
        ]
        return {"steps": steps, "cases": cases}

    return take


def _joined(seat: Seat) -> Any:
    """The mesh of both workers, joined as `sparkdl.training.worker` does it."""
    enter(Place(seat.namespace, seat.address))
    import jax

    from sparkdl.training.exchanges import exchange
    from sparkdl.training.group.collectives import meet
    from sparkdl.training.group.gloo import bind_gloo, widen_send_buffers

    jax.config.update("jax_compilation_cache_dir", os.environ["TMPDIR"] + "/compiled")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    bind_gloo(seat.address)
    jax.distributed.initialize(
        seat.coordinator,
        num_processes=WORKERS,
        process_id=seat.rank,
        cluster_detection_method="deactivate",
        initialization_timeout=JOIN_SECONDS,
        coordinator_bind_address=seat.coordinator,
    )
    mesh = jax.sharding.Mesh(np.array(jax.devices()), (exchange.WORKERS,))
    meet(mesh)
    widen_send_buffers()
    return mesh
