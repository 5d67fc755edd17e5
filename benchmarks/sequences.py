"""Sequences of two data sets, through Spark with 2 workers, beside the same network in PyTorch from equal weights.

    python benchmarks/sequences.py [--quick] [--json FILE] [--data DIR]

- speakers: japanese-vowels, 270 and 370 utterances of 7 to 29 steps of 12 numbers, 9 speakers;
- charts: synthetic-control, 600 series of 60 steps, 6 kinds; of each kind the first 70 train and the others test.

Normalization by what the training rows say, a bidirectional LSTM, its last step or mean, dropout, Dense; Adam with a
step size that falls by a cosine. PyTorch takes the same rows, packed, in batches of its own order. Both begin
with the same weights, three times with other ones (once with --quick). Nothing was chosen by the test rows.

Figures: `speakers_accuracy`, `charts_accuracy`, means over the seeds, and `..._torch`, PyTorch's; `..._fill`, the share
of the padded steps that were rows' own.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from contestants.data import data_file, data_folder, parse
from pyspark.sql import DataFrame, SparkSession
from reporting import has_torch, write

from sparkdl import DeepClassifier, Network
from sparkdl.layers import Bidirectional, Dense, Dropout, LastStep, Layer, Lstm, Normalization, TimeMean
from sparkdl.optimizers import Adam
from sparkdl.schedules import CosineDecay
from sparkdl.spark import local_session

UNITS, BATCH, STEP_SIZE, DROPOUT = 32, 30, 0.005, 0.3
Series = list[np.ndarray[Any, Any]]


class Split(NamedTuple):
    """Series (steps, numbers) and their classes."""

    series: Series
    classes: list[int]


class Task(NamedTuple):
    """What is to be learned: rows to train and to test on, how a series becomes one vector, and for how long."""

    train: Split
    test: Split
    pool: Layer
    epochs: int


def speakers(directory: Path) -> Task:
    """japanese-vowels: blocks of lines, so many of each speaker in turn."""

    def read(split: str) -> Split:
        text = data_file(directory, "japanese-vowels", f"ae.{split}").read_text().strip()
        series = [np.loadtxt(block.splitlines(), np.float32, ndmin=2) for block in text.split("\n\n")]
        counts = map(int, data_file(directory, "japanese-vowels", f"size_ae.{split}").read_text().split())
        return Split(series, [speaker for speaker, count in enumerate(counts) for _ in range(count)])

    return Task(read("train"), read("test"), TimeMean(), 60)


def charts(directory: Path) -> Task:
    """synthetic-control: a hundred lines of each kind in turn."""
    lines = np.loadtxt(data_file(directory, "synthetic-control", "synthetic_control.data"), np.float32)
    series = lines.reshape(6, 100, 60, 1)

    def cut(chosen: slice) -> Split:
        own = series[:, chosen]
        return Split(list(own.reshape(-1, 60, 1)), np.repeat(np.arange(6), own.shape[1]).tolist())

    return Task(cut(slice(0, 70)), cut(slice(70, 100)), LastStep(), 60)


def network_of(task: Task) -> Network:
    """Of a task; the steps of all training rows say how to normalize."""
    steps = np.concatenate(task.train.series).astype(np.float64)
    layers = [Normalization(steps.mean(axis=0), steps.var(axis=0)), Bidirectional(Lstm(UNITS)), task.pool]
    classes = max(task.train.classes) + 1
    return Network([*layers, Dropout(DROPOUT), Dense(classes)], input_shape=(None, steps.shape[1]))


def frame(session: SparkSession, split: Split) -> DataFrame:
    """The rows as a DataFrame."""
    rows = [(series.tolist(), label) for series, label in zip(*split, strict=True)]
    return session.createDataFrame(rows, "features array<array<float>>, label int")


def fitted(session: SparkSession, task: Task, seed: int) -> tuple[float, float, dict[str, Any]]:
    """Accuracy on the test rows, fill, and the weights that it began with."""
    train = frame(session, task.train).cache()
    given: dict[str, Any] = {"network": network_of(task), "optimizer": Adam(schedule=CosineDecay()), "seed": seed}
    given |= {"stepSize": STEP_SIZE, "batchSize": BATCH, "numWorkers": 2, "progress": "off"}
    initial = DeepClassifier(**given, maxIter=0).fit(train).weights
    model = DeepClassifier(**given, maxIter=task.epochs).fit(train)
    fill = model.summary.fill
    assert fill is not None
    return model.evaluate(frame(session, task.test)).accuracy, fill, initial


def trained_by_torch(task: Task, weights: dict[str, Any], seed: int) -> float:
    """PyTorch's accuracy on the test rows, from these weights."""
    import torch
    from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

    torch.manual_seed(seed)
    normal, both, last = weights["normalization_0"], weights["bidirectional_1"], weights["dense_4"]
    lstm = torch.nn.LSTM(len(normal["mean"]), UNITS, bidirectional=True)
    dense = torch.nn.Linear(2 * UNITS, max(task.train.classes) + 1)
    with torch.no_grad():
        for way, suffix in (("forward", ""), ("backward", "_reverse")):
            own = {name: torch.tensor(np.asarray(value)) for name, value in both[way].items()}
            getattr(lstm, f"weight_ih_l0{suffix}").copy_(own["kernel"].T)  # gates i f g o are i f c o
            getattr(lstm, f"weight_hh_l0{suffix}").copy_(own["recurrent"].T)
            getattr(lstm, f"bias_ih_l0{suffix}").copy_(own["bias"])
            getattr(lstm, f"bias_hh_l0{suffix}").zero_().requires_grad_(False)
        dense.weight.copy_(torch.tensor(np.asarray(last["kernel"]).T))
        dense.bias.copy_(torch.tensor(np.asarray(last["bias"])))
    dropout, scale = torch.nn.Dropout(DROPOUT), np.sqrt(normal["variance"])

    def scores(series: Series) -> Any:
        rows = [torch.tensor((each - normal["mean"]) / scale, dtype=torch.float32) for each in series]
        steps, lengths = pad_packed_sequence(lstm(pack_sequence(rows, enforce_sorted=False))[0])
        if isinstance(task.pool, TimeMean):
            pooled = steps.sum(dim=0) / lengths[:, None]
        else:
            pooled = steps[lengths - 1, torch.arange(len(rows))]
        return dense(dropout(pooled))

    learned = [value for value in (*lstm.parameters(), *dense.parameters()) if value.requires_grad]
    optimizer = torch.optim.Adam(learned, STEP_SIZE)
    count, classes = len(task.train.series), torch.tensor(task.train.classes)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, task.epochs * -(-count // BATCH))
    for _ in range(task.epochs):
        for rows in torch.randperm(count).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(
                scores([task.train.series[row] for row in rows]), classes[rows]
            ).backward()
            optimizer.step()
            schedule.step()
    dropout.eval()
    with torch.no_grad():
        found = scores(task.test.series).argmax(dim=1).numpy()
    return float((found == task.test.classes).mean())


def main() -> None:
    """Fit, test, print, write."""
    options = parse(__doc__, "japanese-vowels and synthetic-control")
    directory = data_folder(options.data, "nothing is measured")
    if directory is None:
        return
    session, with_torch, figures = local_session("local[2]"), has_torch(), dict[str, float]()
    for name, read in (("speakers", speakers), ("charts", charts)):
        task, ours, theirs = read(directory), [], []
        for seed in range(1 if options.quick else 3):
            accuracy, fill, weights = fitted(session, task, seed)
            ours.append(accuracy)
            figures[f"{name}_fill"] = fill
            if with_torch:
                theirs.append(trained_by_torch(task, weights, seed))
        figures[f"{name}_accuracy"] = statistics.mean(ours)
        print(f"{name}: {', '.join(f'{each:.4f}' for each in ours)}")
        if theirs:
            figures[f"{name}_accuracy_torch"] = statistics.mean(theirs)
            print(f"{name}, PyTorch: {', '.join(f'{each:.4f}' for each in theirs)}")
    for name, value in figures.items():
        print(f"{name} {value:.4f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
