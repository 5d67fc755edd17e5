"""A wide & deep network from the columns of a DataFrame, on UCI's census income, beside PyTorch and Spark ML.

    python benchmarks/adult.py [--quick] [--json FILE] [--data DIR] [--seeds N] [--validate]

Who earns more than 50,000 dollars a year, learned from adult.data (32,561 rows) and told of adult.test (16,281), both
in DIR or in what the environment variable SPARKDL_DATA names. Eight columns of strings, in which `?` is a value like
others, are indexed; four of numbers, which take few values, are categories as well as numbers. `models.tabular` makes
the network of these columns, and `DeepClassifier` trains it on 2 workers. PyTorch trains the same network from the same
initial weights, by the same optimizer in as many epochs of as large batches, in its own order and with its own dropout.
Spark ML's GBTClassifier (100 trees of depth 5) and LogisticRegression (of one-hot vectors) learn from the same columns.

Hyperparameters were chosen by --validate, which trains on four fifths of adult.data and tests on the last, as told by
a hash; adult.test was not looked at.

Figures, means over 3 seeds: `auc`, `accuracy`, `auc_torch`, `accuracy_torch`, `auc_difference` and
`accuracy_difference` (ours - PyTorch's); of one fit `auc_gbt`, `accuracy_gbt`, `auc_logistic`, `accuracy_logistic`.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from contestants.data import data_file, data_folder, parse
from contestants.ranking import roc_area
from pyspark.ml import Pipeline
from pyspark.ml.classification import GBTClassifier, LogisticRegression
from pyspark.ml.feature import OneHotEncoder, StringIndexer, VectorAssembler
from pyspark.ml.functions import vector_to_array
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from reporting import has_torch, write

from sparkdl import DeepClassifier, Graph, models
from sparkdl.layers.base import Weights
from sparkdl.optimizers import AdamW
from sparkdl.schedules import CosineDecay
from sparkdl.spark import local_session

SCHEMA = (
    "age int, workclass string, fnlwgt int, education string, education_num int, marital_status string, "
    "occupation string, relationship string, race string, sex string, capital_gain int, capital_loss int, "
    "hours_per_week int, native_country string, income string"
)
STRINGS = [column.split()[0] for column in SCHEMA.split(", ") if column.endswith(" string")][:-1]
NUMBERS = ["age", "education_num", "gain", "loss", "hours_per_week"]
BOTH = ["age", "capital_gain", "capital_loss", "hours_per_week"]
CATEGORIES = [f"{name}_index" for name in (*STRINGS, *BOTH)]
OPTIONS: dict[str, Any] = {"units": (128, 64), "dropout": 0.3}
BATCH, STEP_SIZE, DECAY = 256, 2e-3, 0.02


class Found(NamedTuple):
    """What a contestant came to on the test rows."""

    auc: float
    accuracy: float


def read(session: SparkSession, directory: Path, name: str) -> DataFrame:
    """The rows of adult.data or adult.test, with `label` 1 for more than 50,000 dollars."""
    path = data_file(directory, "adult", name)
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return parsed(session, text.decode().splitlines())


def parsed(session: SparkSession, lines: list[str]) -> DataFrame:
    """Rows of lines of 15 values; the test file's comment, and empty lines, are left out."""
    types = [kind.split()[1] for kind in SCHEMA.split(", ")]
    rows = []
    for line in lines:
        if len(values := [value.strip() for value in line.split(",")]) == len(types):
            rows.append([int(value) if kind == "int" else value for value, kind in zip(values, types, strict=True)])
    frame = session.createDataFrame(rows, SCHEMA)
    return frame.selectExpr(
        "*", "log1p(capital_gain) as gain", "log1p(capital_loss) as loss", "int(income like '>50K%') as label"
    )


def indexed(train: DataFrame, test: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Both with the columns of `CATEGORIES`, in two partitions, cached; values that only test has share an index."""
    names = [name.removesuffix("_index") for name in CATEGORIES]
    indexer = StringIndexer(inputCols=names, outputCols=CATEGORIES, handleInvalid="keep").fit(train)
    train, test = (indexer.transform(rows).repartition(2).cache() for rows in (train, test))
    return train, test


def measured(scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Found:
    """Of scores that are above 0 for the class 1."""
    return Found(roc_area(scores, labels), float(((scores > 0) == labels).mean()))


def columns_of(rows: DataFrame, columns: dict[str, str | list[str]], graph: Graph) -> dict[str, Any]:
    """The features as arrays by input, as PyTorch is given them."""
    frame = rows.toPandas()
    integers = graph.integers
    return {
        name: frame[columns[name]].to_numpy("int32" if name in integers else "float32") for name in graph.inputs
    } | {"label": frame["label"].to_numpy()}


def ours(
    graph: Graph, columns: Any, weights: Weights, train: DataFrame, test: DataFrame, epochs: int, seed: int
) -> Found:
    """DeepClassifier on 2 workers."""
    model = DeepClassifier(
        network=graph,
        featuresCols=columns,
        loss="sigmoid_cross_entropy",
        optimizer=AdamW(schedule=CosineDecay(), weight_decay=DECAY),
        initialModel=weights,
        stepSize=STEP_SIZE,
        batchSize=BATCH,
        maxIter=epochs,
        numWorkers=2,
        seed=seed,
        progress="off",
    ).fit(train)
    scored = model.transform(test).select(vector_to_array("rawPrediction")[1].alias("score"), "label").toPandas()
    return measured(scored["score"].to_numpy(), scored["label"].to_numpy())


def theirs(graph: Graph, weights: Weights, train: Any, test: Any, epochs: int, seed: int) -> Found:
    """PyTorch in one process."""
    import torch
    from contestants import tables_torch

    model = tables_torch.Module(graph, weights)
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    tables_torch.train(
        model,
        {name: train[name] for name in graph.inputs},
        lambda outputs, labels: cross_entropy(outputs[:, 0], labels),
        train["label"].astype(np.float32),
        epochs=epochs,
        batch=BATCH,
        step_size=STEP_SIZE,
        weight_decay=DECAY,
        seed=seed,
    )
    with torch.no_grad():
        scores = model(tables_torch.tensors({name: test[name] for name in graph.inputs}))[:, 0]
    return measured(scores.numpy(), test["label"])


def spark_ml(train: DataFrame, test: DataFrame, trees: int) -> dict[str, Found]:
    """Spark ML's own classifiers of the same columns."""
    plain = [f"{name}_index" for name in STRINGS]  # trees need no categories of what are numbers
    vectors = [f"{name}_vector" for name in CATEGORIES]
    stages: dict[str, list[Any]] = {
        "gbt": [
            VectorAssembler(inputCols=[*plain, *NUMBERS], outputCol="features"),
            GBTClassifier(maxIter=trees, maxBins=64, seed=0),
        ],
        "logistic": [
            OneHotEncoder(inputCols=CATEGORIES, outputCols=vectors),
            VectorAssembler(inputCols=[*vectors, *NUMBERS], outputCol="features"),
            LogisticRegression(regParam=1e-4),
        ],
    }
    found = {}
    for name, own in stages.items():
        scored = Pipeline(stages=own).fit(train).transform(test)
        frame = scored.select(vector_to_array("rawPrediction")[1].alias("score"), "label").toPandas()
        found[name] = measured(frame["score"].to_numpy(), frame["label"].to_numpy())
        print(f"  {name:<16}{found[name].auc:9.4f}{found[name].accuracy:11.4f}", flush=True)
    return found


def compared(found: dict[str, list[Found]]) -> dict[str, float]:
    """Means over seeds, and by how much ours differ from PyTorch's."""
    figures = {}
    for metric in Found._fields:
        means = {name: float(np.mean([getattr(each, metric) for each in own])) for name, own in found.items()}
        figures |= {metric if name == "ours" else f"{metric}_{name}": value for name, value in means.items()}
        if "torch" in means:
            figures[f"{metric}_difference"] = means["ours"] - means["torch"]
    return figures


def main() -> None:
    """Measure, print, write."""
    options = parse(__doc__, "adult.data and adult.test", "test on a fifth of adult.data", seeds=True)
    directory = data_folder(options.data, "nothing is measured")
    if directory is None:
        return
    epochs, trees, seeds = (2, 3, 1) if options.quick else (8, 100, 3)
    session = local_session("local[2]", **{"spark.driver.memory": "3g"})
    rows = read(session, directory, "adult.data")
    if options.validate:
        fifth = F.pmod(F.xxhash64(*(name for name in rows.columns)), F.lit(5)) == 0
        train, test = indexed(rows.where(~fifth), rows.where(fifth))
    else:
        train, test = indexed(rows, read(session, directory, "adult.test"))
    print(f"{train.count():,} rows to train on, {test.count():,} to test")

    graph, columns = models.tabular(train, CATEGORIES, NUMBERS, **OPTIONS)
    arrays = [columns_of(part, columns, graph) for part in (train, test)]
    beside = has_torch()
    print(f"  {'contestant':<16}{'AUC':>9}{'accuracy':>11}")
    found: dict[str, list[Found]] = {"ours": []} | ({"torch": []} if beside else {})
    for seed in range(options.seeds or seeds):
        weights = graph.init(seed)
        for name, own in found.items():
            if name == "ours":
                own.append(ours(graph, columns, weights, train, test, epochs, seed))
            else:
                own.append(theirs(graph, weights, *arrays, epochs, seed))
            print(f"  {name:<10}seed {seed}{own[-1].auc:9.4f}{own[-1].accuracy:11.4f}", flush=True)
    found |= {name: [each] for name, each in spark_ml(train, test, trees).items()}
    figures = compared(found)
    for name, value in figures.items():
        print(f"{name} {value:.4f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
