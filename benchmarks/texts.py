"""Spam among short messages, by two networks of texts through Spark with 2 workers, beside PyTorch from equal weights.

    python benchmarks/texts.py [--quick] [--json FILE] [--data DIR] [--seeds N] [--validate]

The SMS Spam Collection, of which about one message in seven is spam. Of each class a fifth of the distinct texts,
chosen by a seed, is for the test; equal messages lie on one side, as 403 of the 5,574 repeat another one.

- transformer: `sparkdl.text.Tokenizer` cuts texts into 2,000 WordPieces, `models.transformer_classifier` reads them;
- cnn: `models.text_cnn` reads characters, which it looks up in the column of strings by itself.

Pieces and characters are learned from the training rows. Rows are cut (64 pieces, 160 characters), so that a few long
ones do not pad many, and batches are padded to one of `lengthBuckets` lengths. Both networks learn by Adam with a step
size that falls by a cosine. PyTorch trains the same networks on the same rows from the same weights, in batches of its
own order. Sizes, epochs and step sizes were chosen on a fifth of the training rows, on which --validate tests; the
number of pieces, rates of dropout and of characters read as unknown ones, and the CNN's epochs on three such fifths,
its filters on all five folds of the training rows.

Figures, means over 3 seeds (1 with --quick): `spam_transformer_f1` and `spam_cnn_f1`, F1 of the class spam on the test
rows, `..._torch`, PyTorch's; `spam_transformer_fill` and `spam_cnn_fill`, the share of the padded steps that were rows'
own.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from contestants.data import data_folder, parse
from pyspark.sql import DataFrame, SparkSession
from reporting import has_torch, write

from sparkdl import DeepClassifier, Network, datasets, models
from sparkdl.layers import Embedding
from sparkdl.layers.base import Weights
from sparkdl.optimizers import Adam
from sparkdl.schedules import CosineDecay
from sparkdl.spark import local_session
from sparkdl.text import Tokenizer

SPLIT_SEED, BATCH = 0, 32
PIECES, MOST_PIECES, MOST_CHARACTERS = 2000, 64, 160
QUICK = {"maxIter": 3, "lengthBuckets": 3}  # each length is a program to compile


class Task(NamedTuple):
    """A network and what it reads: rows as a DataFrame for Spark and as integers for PyTorch."""

    name: str
    network: Network
    column: str
    train: DataFrame
    test: DataFrame
    rows: dict[str, Sequence[np.ndarray[Any, Any]]]
    labels: dict[str, list[int]]
    params: dict[str, Any]


def split(messages: pd.DataFrame, part: float = 0.2, seed: int = SPLIT_SEED) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to train and to test on: of each label `part` of the distinct texts, with all rows that have them."""
    texts = messages.drop_duplicates("text")
    random, held = np.random.default_rng(seed), set[str]()
    for _, own in texts.groupby("label"):
        held |= set(random.permutation(own["text"].to_numpy())[: round(part * len(own))])
    is_held = messages["text"].isin(held)
    return messages[~is_held], messages[is_held]


def tasks(session: SparkSession, train: pd.DataFrame, test: pd.DataFrame) -> list[Task]:
    """Both networks, with what they know of the training rows."""
    frames = {name: session.createDataFrame(rows) for name, rows in (("train", train), ("test", test))}
    labels = {"train": train["label"].tolist(), "test": test["label"].tolist()}
    given = {"inputCol": "text", "outputCol": "pieces", "maxLength": MOST_PIECES}
    tokenizer = Tokenizer(kind="wordpiece", vocabSize=PIECES, **given).fit(frames["train"])
    known = models.vocabulary(frames["train"], "text", split="character", least=2)
    pieces = {name: tokenizer.transform(frame).cache() for name, frame in frames.items()}
    ids = {name: [row.pieces for row in frame.select("pieces").collect()] for name, frame in pieces.items()}
    letters = {
        name: [row[:MOST_CHARACTERS] for row in known.look_up(rows["text"].tolist())]
        for name, rows in (("train", train), ("test", test))
    }
    transformer = models.transformer_classifier(tokenizer.vocabularySize, 2, size=32, blocks=1, heads=4)
    table = Embedding(len(known), 32, vocabulary=known, unknown=True, unknown_rate=0.2)
    cnn = models.text_cnn((None,), 2, embedding=table, sizes=(3, 5, 7), filters=128, dropout=0.3)
    of_transformer = {"maxIter": 8, "stepSize": 2e-3, "lengthBuckets": 14}
    of_cnn = {"maxIter": 24, "stepSize": 5e-3, "lengthBuckets": 14, "maxLength": MOST_CHARACTERS}
    return [
        Task("transformer", transformer, "pieces", *pieces.values(), ids, labels, of_transformer),
        Task("cnn", cnn, "text", *frames.values(), letters, labels, of_cnn),
    ]


def ours(task: Task, weights: Weights, seed: int) -> tuple[float, float]:
    """F1 of spam on the test rows, and fill."""
    model = DeepClassifier(
        network=task.network,
        featuresCol=task.column,
        optimizer=Adam(schedule=CosineDecay()),
        initialModel=weights,
        batchSize=BATCH,
        numWorkers=2,
        seed=seed,
        progress="off",
        **task.params,
    ).fit(task.train)
    fill = model.summary.fill
    assert fill is not None
    return model.evaluate(task.test).per_class[1].f1, fill


def theirs(task: Task, weights: Weights, seed: int) -> float:
    """PyTorch's F1 of spam on the test rows."""
    from contestants import texts_torch

    kind = {"transformer": texts_torch.Transformer, "cnn": texts_torch.TextCnn}[task.name]
    model = kind(task.network, weights)
    given: dict[str, Any] = {"epochs": task.params["maxIter"], "step": task.params["stepSize"]}
    texts_torch.train(model, task.rows["train"], task.labels["train"], batch=BATCH, seed=seed, **given)
    found = texts_torch.scored(model, task.rows["test"]).argmax(axis=1)
    return f1(found, np.array(task.labels["test"]))


def f1(found: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
    """Of the class 1: the harmonic mean of precision and recall."""
    return float(2 * (found & labels).sum() / (found.sum() + labels.sum()))


def main() -> None:
    """Fit, test, print, write."""
    options = parse(__doc__, "sms-spam", "test on a fifth of the training rows", seeds=True)
    directory = data_folder(options.data, "nothing is measured")
    if directory is None:
        return
    messages = datasets.sms_spam(directory).to_pandas()
    messages["label"] = (messages["label"] == "spam").astype(int)
    train, test = split(messages)
    if options.validate:
        train, test = split(train)
    print(
        f"{len(train):,} messages to train on, {len(test):,} to test, {test['label'].sum()} of these spam", flush=True
    )
    seeds = options.seeds or (1 if options.quick else 3)
    session, beside, figures = local_session("local[2]"), has_torch(), dict[str, float]()
    for task in tasks(session, train, test):
        found: dict[str, list[float]] = {"f1": [], "fill": []} | ({"f1_torch": []} if beside else {})
        if options.quick:
            task.params.update(QUICK)
        for seed in range(seeds):
            weights = task.network.init(seed)
            own = dict(zip(("f1", "fill"), ours(task, weights, seed), strict=True))
            if beside:
                own["f1_torch"] = theirs(task, weights, seed)
            for name, value in own.items():
                found[name].append(value)
            print(f"{task.name}, seed {seed}:", *(f"{name} {value:.4f}" for name, value in own.items()), flush=True)
        figures |= {f"spam_{task.name}_{name}": statistics.mean(values) for name, values in found.items()}
    for name, value in figures.items():
        print(f"{name} {value:.4f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
