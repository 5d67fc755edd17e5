"""The oil temperature of a transformer over the next 24 hours, through Spark with 2 workers, beside PyTorch.

    python benchmarks/forecasts.py [--quick] [--json FILE] [--data DIR] [--validate]

ETTh1 (Zhou et al. 2021), in DIR or in what the environment variable SPARKDL_DATA names: hourly rows of two years, of
which the usual 12 months train and the last 4 of 20 test; a test window's future lies in these. `SeriesWindows` makes
windows of 24 hours of the oil temperature and the hour of day, as a sine and a cosine, which are known of the 24 hours
to come, too. `models.forecaster` reads them relative to their last hour and is trained by the mean absolute error, with
an LSTM and with causal convolutions.
PyTorch trains the same LSTM network from the same initial weights on the same windows, in an order of its own and with
its own dropout. "The last value" and "the same hour yesterday" are what they have to beat.

Columns, network and hyperparameters were chosen by the 4 months between, which --validate tests on, not by the test
months.

Figures, in degrees (squared for mse), means over 3 seeds (one with --quick): `ett_mae`, `ett_mse`, of PyTorch
`ett_mae_torch`, `ett_mse_torch` and `ett_mae_over_torch` (ours / PyTorch's), of the convolutions `ett_conv_mae` and
`ett_conv_mse`; `ett_mae_yesterday`, `ett_mse_yesterday`, `ett_mae_last`, `ett_mse_last`.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from contestants.data import data_folder, parse
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from reporting import has_torch, write

from sparkdl import DeepEstimator, Graph, datasets, models
from sparkdl.layers.base import Weights
from sparkdl.optimizers import AdamW
from sparkdl.schedules import CosineDecay
from sparkdl.series import SeriesWindows
from sparkdl.spark import local_session

Array = np.ndarray[Any, Any]
WINDOW, HORIZON = 24, 24
KNOWN = ["sine", "cosine"]  # of the hour of day
VALUES = ["OT", *KNOWN]
COLUMNS = {"history": "history", "known": "known"}
NETWORKS: dict[str, dict[str, Any]] = {"lstm": {"lstm_units": (32,)}, "conv": {"filters": (32,) * 3}}
OPTIONS: dict[str, Any] = {"units": (32,), "dropout": 0.2, "relative": True}
EPOCHS, BATCH, STEP_SIZE, DECAY = 6, 256, 5e-3, 0.01


class Found(NamedTuple):
    """Errors of all hours of all windows."""

    mae: float
    mse: float


def hours_of(session: SparkSession, directory: Path) -> DataFrame:
    """A row an hour: time, the oil temperature OT, the hour of day, and which split it is of."""
    angle = F.hour("time") * (2 * np.pi / 24)
    return session.createDataFrame(datasets.ett(directory)).select(
        "time", "OT", F.sin(angle).alias("sine"), F.cos(angle).alias("cosine"), "split"
    )


def windows_of(hours: DataFrame) -> DataFrame:
    """All windows, an hour from one to the next, in two partitions."""
    stage = SeriesWindows(
        valueCols=VALUES, targetCols="OT", knownCols=KNOWN, window=WINDOW, horizon=HORIZON, every="1 hour"
    )
    return stage.transform(hours).repartition(2).cache()


def futures_in(windows: DataFrame, hours: DataFrame, split: str) -> DataFrame:
    """The windows whose future lies in these months; what they look back on may be before."""
    limits = hours.where(F.col("split") == split).agg(F.min("time"), F.max("time")).first()
    assert limits is not None
    first, last = limits[0] + timedelta(hours=HORIZON - 1), limits[1]
    return windows.where(f"until between timestamp_ntz'{first}' and timestamp_ntz'{last}'")


def arrays_of(windows: DataFrame) -> dict[str, Array]:
    """Columns as arrays, as PyTorch is given them."""
    frame = windows.select("history", "known", "future").toPandas()
    return {name: np.array([np.stack(row) for row in frame[name]], np.float32) for name in frame}  # type: ignore[misc]


def errors(forecasts: Array, future: Array) -> Found:
    """Of forecasts (windows, 24), or of what is broadcast to them."""
    distance = forecasts.astype(np.float64) - future
    return Found(float(np.abs(distance).mean()), float((distance**2).mean()))


def rules(test: dict[str, Array]) -> dict[str, Found]:
    """What a forecast has to beat, which needs no training."""
    temperature = test["history"][:, :, 0]
    forecasts = {"yesterday": temperature[:, -24:], "last": temperature[:, -1:]}
    return {name: errors(forecast, test["future"]) for name, forecast in forecasts.items()}


def ours(graph: Graph, weights: Weights, train: DataFrame, test: DataFrame, epochs: int, seed: int) -> Found:
    """DeepEstimator on 2 workers."""
    model = DeepEstimator(
        network=graph,
        featuresCols=COLUMNS,
        labelCol="future",
        loss="absolute_error",
        optimizer=AdamW(schedule=CosineDecay(), weight_decay=DECAY),
        initialModel=weights,
        stepSize=STEP_SIZE,
        batchSize=BATCH,
        maxIter=epochs,
        numWorkers=2,
        seed=seed,
        progress="off",
    ).fit(train)
    average = model.evaluate(test).average
    return Found(average.mae, average.mse)


def theirs(
    graph: Graph, weights: Weights, train: dict[str, Array], test: dict[str, Array], epochs: int, seed: int
) -> Found:
    """PyTorch in one process."""
    import torch
    from contestants import tables_torch

    model = tables_torch.Module(graph, weights)
    tables_torch.train(
        model,
        {name: train[name] for name in COLUMNS},
        lambda outputs, labels: (outputs - labels).abs().sum(dim=1).mean(),
        train["future"],
        epochs=epochs,
        batch=BATCH,
        step_size=STEP_SIZE,
        weight_decay=DECAY,
        seed=seed,
    )
    with torch.no_grad():
        forecasts = model(tables_torch.tensors({name: test[name] for name in COLUMNS}))
    return errors(forecasts.numpy(), test["future"])


def figures_of(found: dict[str, list[Found]]) -> dict[str, float]:
    """Means over seeds, and how ours compare."""
    figures = {}
    for name, own in found.items():
        for metric, mean in zip(Found._fields, np.mean(own, axis=0), strict=True):
            key = {"lstm": f"ett_{metric}", "conv": f"ett_conv_{metric}"}.get(name, f"ett_{metric}_{name}")
            figures[key] = float(mean)
    if "torch" in found:
        figures["ett_mae_over_torch"] = figures["ett_mae"] / figures["ett_mae_torch"]
    return figures


def main() -> None:
    """Fit, test, print, write."""
    options = parse(__doc__, "ETTh1.csv", "test on the months of validation")
    directory = data_folder(options.data, "nothing is measured")
    if directory is None:
        return
    epochs, seeds = (2, 1) if options.quick else (EPOCHS, 3)
    session = local_session("local[2]", **{"spark.sql.execution.arrow.pyspark.enabled": "true"})
    hours = hours_of(session, directory)
    windows = windows_of(hours)
    split = "validation" if options.validate else "test"
    train, test = (futures_in(windows, hours, name) for name in ("train", split))
    arrays = [arrays_of(part) for part in (train, test)]
    print(f"{train.count():,} windows to train on, {test.count():,} of the {split} months")
    normalization = models.normalization(hours.where("split = 'train'"), VALUES)
    graphs = {
        name: models.forecaster(normalization, HORIZON, known=len(KNOWN), window=WINDOW, **OPTIONS, **own)
        for name, own in NETWORKS.items()
    }

    found = {name: [errors] for name, errors in rules(arrays[1]).items()} | {name: [] for name in graphs}
    print(f"  {'forecast':<16}{'MAE':>9}{'MSE':>9}")
    for name in ("yesterday", "last"):
        print(f"  {name:<16}{found[name][0].mae:9.4f}{found[name][0].mse:9.4f}")
    if beside := has_torch():
        found["torch"] = []
    for seed in range(seeds):
        for name, graph in graphs.items():
            weights = graph.init(seed)
            found[name].append(ours(graph, weights, train, test, epochs, seed))
            if name == "lstm" and beside:
                found["torch"].append(theirs(graph, weights, *arrays, epochs, seed))
        for name in (*graphs, *(["torch"] if beside else [])):
            print(f"  {name:<10}seed {seed}{found[name][-1].mae:9.4f}{found[name][-1].mse:9.4f}", flush=True)
    figures = figures_of(found)
    for name, value in figures.items():
        print(f"{name} {value:.4f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
