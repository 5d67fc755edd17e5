"""PyTorch's side of the benchmark of the character model: its updates, and TorchDistributor's fit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from contestants.characters_case import BATCH, LENGTH, STEP_SIZE, TRUNCATED, UNITS, Cut, read_turn, read_weights
from contestants.recurrent_torch import NAMES
from contestants.serve import Spec, Taker, Turn
from contestants.torch_workers import fits, joined, timed
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.nn.parallel import DistributedDataParallel

State = tuple[Tensor, Tensor] | None


class Characters(nn.Module):
    """The same network from the same weights; the second biases of PyTorch's LSTMs, which ours lack, stay zeros."""

    def __init__(self, weights: dict[str, Any]) -> None:
        super().__init__()
        # Columns of ours are rows of PyTorch's, in the same order.
        held = [
            {key: torch.tensor(np.asarray(array).T) for key, array in own.items()} for _, own in sorted(weights.items())
        ]
        recurrent, (last,) = ([own for own in held if ("recurrent" in own) == wanted] for wanted in (True, False))
        self.count = last["kernel"].shape[0]
        self.lstm = nn.LSTM(self.count, UNITS[0], len(UNITS), batch_first=True)
        self.dense = nn.Linear(UNITS[-1], self.count)
        with torch.no_grad():
            for number, own in enumerate(recurrent):
                getattr(self.lstm, f"bias_hh_l{number}").zero_().requires_grad_(False)
                for name, array in own.items():
                    getattr(self.lstm, NAMES[name].replace("l0", f"l{number}")).copy_(array)
            self.dense.weight.copy_(last["kernel"])
            self.dense.bias.copy_(last["bias"])

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Scores (rows, characters, steps) of what comes next, and the state after."""
        y, state = self.lstm(one_hot(ids, self.count).float(), state)
        return self.dense(y).transpose(1, 2), state


def updates(model: Characters, forward: Callable[..., Any], batches: Iterator[Cut]) -> Iterator[Tensor]:
    """The losses of updates, one for each TRUNCATED steps of each batch; `forward` is the model, however wrapped."""
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], STEP_SIZE, fused=True)
    for batch in batches:
        state = None
        segments = zip(*(torch.from_numpy(part).long().split(TRUNCATED, dim=1) for part in batch), strict=True)
        for ids, after in segments:
            optimizer.zero_grad(set_to_none=True)
            scores, state = forward(ids, state)
            loss = cross_entropy(scores, after)
            loss.backward()
            optimizer.step()
            state = tuple(part.detach() for part in state)
            yield loss.detach()


def learned(weights: dict[str, Any], train: Cut, test: Cut) -> tuple[float, float]:
    """One epoch of a single batch: the mean loss while training, and that of the rows to test on, by character."""
    model = Characters(weights)
    losses = torch.stack(list(updates(model, model, iter([train]))))
    with torch.no_grad():
        ids, after = (torch.from_numpy(part).long() for part in test)
        return float(losses.mean()), float(cross_entropy(model(ids, None)[0], after))


def fit(spec: Spec) -> Taker:
    """Fits of so many batches by TorchDistributor."""
    return fits(spec, train)


def train(folder: str, steps: int) -> Turn:
    """What each process does with its part of every batch."""
    with joined() as (rank, world):
        model = Characters(read_weights(Path(folder)))
        rows = Cut(*(part[rank::world] for part in read_turn(Path(folder), steps)))
        each = BATCH // world
        batches = [Cut(*(part[at : at + each] for part in rows)) for at in range(0, len(rows.features), each)]
        together = DistributedDataParallel(model, gradient_as_bucket_view=True)
        losses = updates(model, together, itertools.cycle(batches))
        count = steps * LENGTH // TRUNCATED
        seconds, mean = timed(lambda: next(losses), count, warm_up=3)
    return {"seconds": seconds, "steps": count, "loss": float(mean)}
