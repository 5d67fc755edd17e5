"""The text, network and rows of the benchmark of the character model, the same for everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sparkdl import Network, datasets, models
from sparkdl.layers import Vocabulary
from sparkdl.weights import named_arrays, nested_weights

Array = np.ndarray[Any, Any]

UNITS, BATCH, TRUNCATED, STEP_SIZE, SEED = (256, 256), 64, 64, 0.002, 0
LENGTH = 256  # characters of a row in a turn, which so takes LENGTH / TRUNCATED updates a batch


class Text(NamedTuple):
    """The characters there are, and the numbers of those to train and to test on."""

    characters: Vocabulary
    train: Array
    test: Array


class Cut(NamedTuple):
    """Rows (count, steps) of a text, and at every step the character after it."""

    features: Array
    labels: Array


def read_text(directory: Path) -> Text:
    """tinyshakespeare."""
    table = datasets.tiny_shakespeare(directory).to_pandas()
    whole = {split: "\n\n".join(own) for split, own in table.groupby("split", sort=False)["text"]}
    characters = Vocabulary(sorted(set().union(*whole.values())), split="character")
    train, test = characters.look_up([whole["train"], whole["test"]])
    return Text(characters, train, test)


def cut(ids: Array, steps: int, count: int | None = None) -> Cut:
    """The text in so many rows, as many as it has by default; a text that is shorter begins anew."""
    count = count or (len(ids) - 1) // steps
    places = np.arange(count * steps) % (len(ids) - 1)
    return Cut(ids[places].reshape(count, steps), ids[places + 1].reshape(count, steps))


def network_of(characters: int | Vocabulary) -> Network:
    """The character model of so many characters."""
    return models.char_rnn(characters, UNITS)


def write_case(folder: Path, text: Text) -> None:
    """Write what the contestants of the race read."""
    weights = network_of(len(text.characters)).init(SEED)
    np.savez(folder / "weights.npz", **dict(named_arrays(weights)))
    np.save(folder / "train.npy", text.train)


def read_weights(folder: Path) -> dict[str, Any]:
    """The initial weights, nested by layer."""
    with np.load(folder / "weights.npz") as arrays:
        return nested_weights(dict(arrays))


def read_turn(folder: Path, steps: int) -> Cut:
    """So many batches of rows."""
    return cut(np.load(folder / "train.npy"), LENGTH, steps * BATCH)
