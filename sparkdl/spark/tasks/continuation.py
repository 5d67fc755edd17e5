"""What a task does to go on with rows of integers: a column of them goes in, what a network draws comes out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

import jax
import numpy as np
import pyarrow as pa

from sparkdl.arrays import INTEGERS
from sparkdl.decoding.columns import decode_features
from sparkdl.decoding.layout import VALID, check_rows
from sparkdl.decoding.ragged_rows import rounded_steps
from sparkdl.generation import Drawing
from sparkdl.layers.base import Weights
from sparkdl.layers.ragged import Ragged
from sparkdl.network import BaseNetwork
from sparkdl.scoring.forward import Scoring, keep, on_device
from sparkdl.scoring.inference import REMEDY, Batch, cut
from sparkdl.spark.tasks.collector import spare_modules
from sparkdl.spark.tasks.device import prepare_device

_models: OrderedDict[tuple[str, str], Weights] = OrderedDict()  # the one that this Python worker used last


def continuations(
    batches: Iterator[Batch], scoring: Scoring, weights: Callable[[], bytes], drawing: Drawing
) -> Iterator[pa.Array]:
    """Lists of what is drawn for each row, `scoring.batch` rows at a time; null for those that cannot be used.

    Raises
    ------
    ValueError
        A row cannot be used, as an empty one, and `scoring` is strict.
    """
    prepare_device(scoring.device)
    network, key = scoring.specs()[0], (scoring.key, scoring.dtype)
    if key not in _models:
        keep(_models, key, on_device(scoring, weights), 1)
    for batch in batches:
        for part in cut(batch, scoring.batch):
            yield _continued(part, network, _models[key], scoring, drawing)
    spare_modules()


def _continued(
    batch: Batch, network: BaseNetwork, weights: Weights, scoring: Scoring, drawing: Drawing
) -> pa.ListArray:
    (layout,) = scoring.layouts.values()
    decoded = decode_features(list(batch), layout)
    held = dict(zip(scoring.columns, batch, strict=True))
    bad = check_rows([decoded], held, REMEDY if scoring.strict else None) != VALID
    rows = decoded.values
    empty = (rows.lengths == 0) & ~bad
    if scoring.strict and empty.any():
        raise ValueError(f"{layout.subject} holds an empty row, which nothing goes on from; {REMEDY}.")
    bad |= empty
    if (room := network.room(drawing.steps)) is not None:
        over = (rows.lengths > room) & ~bad
        if scoring.strict and over.any():
            raise ValueError(
                f"{layout.subject} holds a row of {rows.lengths[over][0]} integers, of which generate goes on with at "
                f"most {room} where steps={drawing.steps}, as the network's positions tell {network.longest()} steps "
                f"apart; set maxLength to {room}, or {REMEDY}."
            )
        bad |= over
    values, lengths = rows.padded_to(rounded_steps(rows.longest)).padded()
    missing = scoring.batch - len(rows)  # every new shape would compile anew
    lengths = np.pad(np.where(bad, 1, lengths), (0, missing), mode="edge")  # with rows that end when another does
    prompts = Ragged(np.pad(values, ((0, missing), (0, 0)), mode="edge"), lengths)
    with jax.enable_x64(scoring.dtype == "float64"):
        drawn = network.generate(weights, prompts, **drawing._asdict())
    assert isinstance(drawn, Ragged)
    counts = np.where(bad, 0, drawn.lengths[: len(rows)])
    flat = drawn.values[: len(rows)][np.arange(drawing.steps) < counts[:, None]]
    bounds = np.append(0, np.cumsum(counts)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(bounds), pa.array(flat.astype(INTEGERS)), mask=pa.array(bad))
