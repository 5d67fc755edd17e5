"""Rows a second of `transform` by type of column, beside three other ways to run a model in Spark.

    python benchmarks/transform.py [--quick] [--json FILE]

In one session of two slots, over one cached DataFrame of images (28, 28, 1), these take turns for every type of column,
in two tasks, each of so many rows that these cost more time than its start and the job's planning: `transform` of a
small CNN, of one dense layer of ten outputs, and of one of a single output, whose arithmetic is next to nothing; (a) an
identity, which is an Arrow UDF that gives back the column, and a reader, one that is given the column and gives a 0 for
every row; (b) `predict_batch_udf` with the same networks, jitted; (c) PyTorch in a pandas UDF with the same weights, if
it is installed. Networks give the class of a row, or the single output, and nothing else; Spark adds up these numbers,
or how many bytes or values the identity gave back. Once more, ours also gives rawPrediction and probability, which are
dropped.

Figures, of medians, for each type: `rows_per_s_<type>` (the CNN), `all_columns_rows_per_s_<type>`,
`over_identity_<type>` and `over_reader_<type>` (the rate of the single output over that of (a) and of the reader),
`dense_over_identity_<type>` and `dense_over_reader_<type>` (that of ten outputs),
`over_predict_batch_udf_<type>` and `over_torch_udf_<type>` (the CNN's rate over theirs), and
`dense_over_predict_batch_udf_<type>`.
Further `first_batch_s` (a new model's first batch in a session that has run only other UDFs), `next_model_s` (that of
another model of the same network), and the memory of a Python worker in MiB over a partition of few rows and one of ten
times as many: `worker_mib`, `worker_mib_tenfold`.
"""

from __future__ import annotations

import os
import re
import statistics
import threading
import time
from atexit import register
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.functions import array_to_vector, predict_batch_udf, vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType
from reporting import arguments, write

from sparkdl import DeepClassificationModel, DeepRegressionModel, Network, datasets
from sparkdl.layers import Conv, Dense, Flatten, MaxPool, Relu, Rescale
from sparkdl.spark import local_session
from sparkdl.spark.driver.arrow_udf import arrow_udf

Array = np.ndarray[Any, Any]
SHAPE, WIDTH, BATCH, CLASSES = (28, 28, 1), 784, 128, 10
CNN = Network([Rescale(1 / 255), Conv(16, (3, 3)), Relu(), MaxPool(2), Flatten(), Dense(CLASSES)], SHAPE)
DENSE = Network([Rescale(1 / 255), Flatten(), Dense(CLASSES)], SHAPE)
TINY = Network([Flatten(), Dense(1)], SHAPE)
TYPES = ("binary", "image", "array", "vector", "sparse")


def frame(session: SparkSession, count: int, times: int) -> DataFrame:
    """Cached rows, each `times` over and in two partitions, with the same images in columns of each type.

    Dark pixels are 0, so that MLlib compresses the Vectors to sparse ones. They come from Parquet, since Spark hashes
    rows that are part of a plan, all of them, in every job; one expression repeats them, as a union of as many frames
    takes longer to plan and compile than its rows to read.
    """
    table = datasets.sample()
    pixels = np.frombuffer(b"".join(table["image"].to_pylist()), np.uint8).reshape(-1, WIDTH)
    pixels = np.resize(np.where(pixels < 128, 0, pixels), (count, WIDTH)).astype(np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * WIDTH
    binary = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(pixels)])
    floats = pa.ListArray.from_arrays(offsets, pixels.astype(np.float32).reshape(-1))
    rows = session.createDataFrame(pa.table({"binary": binary, "array": floats}))
    image = {"origin": "''", "height": "28", "width": "28", "nChannels": "1", "mode": "0", "data": "binary"}
    rows = rows.withColumn("image", F.struct(*(F.expr(text).alias(name) for name, text in image.items())))
    rows = rows.withColumn("vector", array_to_vector(F.col("array").cast("array<double>")))
    rows = VectorAssembler(inputCols=["vector"], outputCol="sparse").transform(rows)
    folder = mkdtemp()
    register(rmtree, folder)
    rows.select(*TYPES).write.mode("overwrite").parquet(folder)
    rows = session.read.parquet(folder).cache()
    rows.count()
    return rows.coalesce(2).withColumn("copy", F.explode(F.array_repeat(F.lit(0), times))).drop("copy")


def model(network: Network, column: str, seed: int = 0) -> DeepClassificationModel:
    """Ours, with fresh weights, which gives all of its columns."""
    fresh = DeepClassificationModel(network.init(seed)).setPredictionCol("class")
    return fresh.setParams(
        network=network, loss="softmax_cross_entropy", featuresCol=column, batchSize=BATCH, deviceType="cpu"
    )


def tiny_model(column: str) -> DeepRegressionModel:
    """Ours, with a single output."""
    fresh = DeepRegressionModel(TINY.init(0)).setPredictionCol("class")
    return fresh.setParams(network=TINY, loss="squared_error", featuresCol=column, batchSize=BATCH, deviceType="cpu")


def classes_alone(full: DeepClassificationModel) -> DeepClassificationModel:
    """The model, as one that gives the class only."""
    return full.copy().setParams(rawPredictionCol="", probabilityCol="")


def identity(column: str, kind: DataType) -> Column:
    """(a): gives back the column; then how many bytes or values that is. Of Vectors it is the structs."""

    def itself(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        for (batch,) in batches:
            yield batch

    if isinstance(kind, VectorUDT):
        return F.size(arrow_udf(itself, kind.sqlType())(F.unwrap_udt(column))["values"])
    given = arrow_udf(itself, kind)(column)
    return F.size(given) if column == "array" else F.length(given["data"] if column == "image" else given)


def reader(column: str) -> Column:
    """Is given the column, and gives 0."""

    def zeros(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        for (batch,) in batches:
            yield pa.array(np.zeros(len(batch)))

    return arrow_udf(zeros, DoubleType())(column)


def as_numbers(column: str) -> Column:
    """What a pandas UDF can be given of a column."""
    if column == "image":
        return F.col("image.data")
    return vector_to_array(column, "float32") if column in ("vector", "sparse") else F.col(column)


def images(values: Any) -> Array:
    """Images of numbers, or of the bytes of each."""
    if isinstance(values[0], bytes):
        values = np.frombuffer(b"".join(values), np.uint8)
    return np.asarray(values).reshape(-1, *SHAPE)


def by_predict_batch_udf(network: Network, weights: dict[str, Any], column: str) -> Column:
    """(b): the network jitted, behind Spark's own function for inference."""

    def make() -> Callable[[Array], Array]:
        os.environ.setdefault("PJRT_NPROC", "1")
        import jax

        forward = jax.jit(lambda weights, x: network.forward(weights, x.astype("float32")).argmax(axis=1))
        placed = jax.device_put(weights)
        return lambda values: np.asarray(forward(placed, images(values)), np.float64)

    shapes = None if column in ("binary", "image") else [list(SHAPE)]
    udf = predict_batch_udf(make, return_type=DoubleType(), batch_size=BATCH, input_tensor_shapes=shapes)
    return udf(as_numbers(column))


def by_torch(weights: dict[str, Any], column: str) -> Column:
    """(c): the CNN by PyTorch."""

    def load() -> Any:
        import torch

        torch.set_num_threads(1)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 3),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(2704, 10),
        )
        kernel, bias = (torch.tensor(np.array(weights["conv_1"][name])) for name in ("kernel", "bias"))
        net[0].weight.data, net[0].bias.data = kernel.permute(3, 2, 0, 1).contiguous(), bias
        kernel = np.array(weights["dense_5"]["kernel"]).reshape(13, 13, 16, CLASSES).transpose(3, 2, 0, 1)
        net[4].weight.data = torch.tensor(kernel.reshape(CLASSES, -1).copy())
        net[4].bias.data = torch.tensor(np.array(weights["dense_5"]["bias"]))
        return net.eval()

    def classify(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        import torch

        net = load()
        with torch.inference_mode():
            for series in batches:
                values = series.to_list()
                parts = (values[first : first + BATCH] for first in range(0, len(values), BATCH))
                x = (torch.from_numpy(images(part).astype(np.float32)).permute(0, 3, 1, 2) / 255 for part in parts)
                yield pd.Series(np.concatenate([net(part).argmax(dim=1).numpy() for part in x]).astype(np.float64))

    classify.__annotations__ = {"batches": Iterator[pd.Series], "return": Iterator[pd.Series]}
    return F.pandas_udf(classify, "double")(as_numbers(column))


def contestants(column: str, kind: DataType) -> dict[str, Callable[[DataFrame], DataFrame]]:
    """By name: adds a number for every row in the column "class"."""
    full = model(CNN, column)
    ours: dict[str, Any] = {"cnn": classes_alone(full), "dense": classes_alone(model(DENSE, column))}
    ours |= {"tiny": tiny_model(column), "all_columns": full}
    weights = {name: each.weights for name, each in ours.items()}
    others = {
        "identity": identity(column, kind),
        "reader": reader(column),
        "predict_batch_udf": by_predict_batch_udf(CNN, weights["cnn"], column),
        "dense_predict_batch_udf": by_predict_batch_udf(DENSE, weights["dense"], column),
    }
    if find_spec("torch"):
        others["torch_udf"] = by_torch(weights["cnn"], column)
    columns = {name: partial(DataFrame.withColumn, colName="class", col=column) for name, column in others.items()}
    return {name: each.transform for name, each in ours.items()} | columns


def sum_of_classes(rows: DataFrame) -> float:
    """Runs the job."""
    return rows.agg(F.sum("class")).first()[0]


def compare(rows: DataFrame, repeats: int) -> dict[str, float]:
    """The figures of all types of columns, all contestants taking turns."""
    ways = {(kind, name): way for kind in TYPES for name, way in contestants(kind, rows.schema[kind].dataType).items()}
    sums = {each: sum_of_classes(way(rows)) for each, way in ways.items()}  # and all compile
    for kind, name in ways:
        if name.endswith("_udf"):
            ours = sums[kind, "dense" if name.startswith("dense") else "cnn"]
            assert abs(sums[kind, name] - ours) <= 1e-3 * ours, f"{kind}: {name} gives other classes"
    seconds: dict[tuple[str, str], list[float]] = {each: [] for each in ways}
    for _ in range(repeats):
        for each, way in ways.items():
            began = time.perf_counter()
            sum_of_classes(way(rows))
            seconds[each].append(time.perf_counter() - began)
    rate = {each: rows.count() / statistics.median(taken) for each, taken in seconds.items()}
    names = list(dict.fromkeys(name for _, name in ways))
    print(f"{'rows a second':<26}" + "".join(f"{kind:>10}" for kind in TYPES))
    for name in names:
        print(f"{name:<26}" + "".join(f"{rate[kind, name]:>10,.0f}" for kind in TYPES))
    figures = {f"rows_per_s_{kind}": rate[kind, "cnn"] for kind in TYPES}
    figures |= {f"all_columns_rows_per_s_{kind}": rate[kind, "all_columns"] for kind in TYPES}
    for kind in TYPES:
        for name in ("identity", "reader"):
            figures[f"over_{name}_{kind}"] = rate[kind, "tiny"] / rate[kind, name]
            figures[f"dense_over_{name}_{kind}"] = rate[kind, "dense"] / rate[kind, name]
        for name in (name for name in names if name.endswith("_udf")):
            ours = "dense" if name.startswith("dense") else "cnn"
            figures[f"{name.replace('predict', 'over_predict').replace('torch', 'over_torch')}_{kind}"] = (
                rate[kind, ours] / rate[kind, name]
            )
    return figures


def first_batches(session: SparkSession, rows: DataFrame) -> dict[str, float]:
    """Seconds to the first batch of a model, in a session that ran another UDF, and of a second model like it."""
    few = session.createDataFrame(rows.limit(BATCH).toArrow()).coalesce(1).cache()
    sum_of_classes(few.withColumn("class", reader("binary")))
    figures = {}
    for seed, name in enumerate(("first_batch_s", "next_model_s")):
        fresh = model(CNN, "binary", seed)
        began = time.perf_counter()
        sum_of_classes(fresh.transform(few))
        figures[name] = time.perf_counter() - began
    return figures


def memory(session: SparkSession, count: int) -> dict[str, float]:
    """MiB of anonymous memory that the largest Python worker has at most while one partition goes through it."""

    def peak(rows: int) -> float:
        done, most = threading.Event(), [0]

        def watch() -> None:
            while not done.wait(0.02):
                most.append(max(_worker_memory(), default=0))

        thread = threading.Thread(target=watch)
        thread.start()
        data = session.range(0, rows, 1, 1).select(F.array_repeat(F.lit(1.0).cast("float"), WIDTH).alias("array"))
        sum_of_classes(model(CNN, "array").transform(data))
        done.set()
        thread.join()
        return max(most) / 1024

    return {"worker_mib": peak(count), "worker_mib_tenfold": peak(10 * count)}


def _worker_memory() -> Iterator[int]:
    """KiB of anonymous memory of each Python worker of Spark on this machine, where Linux tells."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            if b"\0sparkdl.spark.daemon\0" in command and _descends(process.name, os.getpid()):
                yield int(re.search(r"RssAnon:\s+(\d+)", (process / "status").read_text())[1])  # type: ignore[index]
        except (OSError, TypeError):  # it ended meanwhile
            continue


def _descends(process: str, ancestor: int) -> bool:
    while (pid := int(process)) not in (0, 1, ancestor):
        process = Path("/proc", process, "stat").read_text().rsplit(")", 1)[1].split()[1]
    return pid == ancestor


def main() -> None:
    """Measure, print, write."""
    options = arguments(__doc__).parse_args()
    count, times, repeats = (6_000, 4, 3) if options.quick else (10_000, 60, 3)
    session = local_session("local[2]", **{"spark.driver.memory": "4g"})
    rows = frame(session, count, times)
    figures = first_batches(session, rows) | compare(rows, repeats) | memory(session, 10_000)
    for name, value in figures.items():
        print(f"{name} {value:.3f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
