"""Recommending films by two towers on MovieLens, beside popularity, Spark ML's ALS and the same towers in PyTorch.

    python benchmarks/movielens.py [--quick] [--json FILE] [--data DIR] [--validate]

The films that 610 users rated 4 or better, from ratings.csv and movies.csv of ml-latest-small in DIR, or in what the
environment variable SPARKDL_DATA names. Of each user's, in the order of time, the last fifth is to be recommended, and
the rest is known; films that a user is known to like are left out of what is recommended to that user, for everybody
alike. `recall@20` is the mean over users of the share of the films to be recommended that is among the first 20.
Films that nobody is known to like count, though nobody can find them.

`models.two_tower` has a vector for every user, and for a film the vectors of its number and of its genres, taken as one
category. `DeepEstimator` trains it on 2 workers by `InBatchSoftmax(corrected=True)`; `model.up_to("query")` and
`model.up_to("item")` give the vectors, and what is nearest by dot product is recommended. PyTorch trains the same
towers from the same initial weights by the same loss, optimizer, epochs and size of batches. ALS has implicit
preferences and the best of five settings. "item neighbours" is the sum of the cosines between a film's users
and those of the films that the user likes, a strong baseline on data this small.

Hyperparameters, also those of ALS, were chosen by --validate, which leaves the last fifth out altogether, and
recommends the last fifth of the rest.

Figures, of the towers means over 3 seeds: `recall` with the suffixes `_towers`, `_popularity`, `_als`, `_torch` and
`_neighbours`, and `recall_over_popularity`, `recall_over_als` and `recall_over_torch` of the towers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from contestants.data import data_file, data_folder, parse
from contestants.ranking import recall
from pyspark.ml.recommendation import ALS
from pyspark.sql import DataFrame, SparkSession
from reporting import has_torch, write

from sparkdl import DeepEstimator, DeepModel, Graph, models
from sparkdl.layers import Embedding
from sparkdl.layers.base import Weights
from sparkdl.losses import InBatchSoftmax
from sparkdl.optimizers import AdamW
from sparkdl.schedules import CosineDecay
from sparkdl.spark import local_session

LIKED, KNOWN, FIRST = 4.0, 0.8, 20
SIZE, TEMPERATURE = 32, 0.1
BATCH, STEP_SIZE, DECAY = 1024, 0.01, 0.3
ALS_OPTIONS: dict[str, Any] = {"rank": 16, "regParam": 0.1, "alpha": 1.0, "maxIter": 15, "checkpointInterval": 5}
Array = np.ndarray[Any, Any]


class Likes(NamedTuple):
    """Who likes which film.

    Attributes
    ----------
    known : DataFrame of pandas
        A row for each film that a user is known to like: user, film and genres, numbered from 0, and how often the film
        is among these rows.
    films : DataFrame of pandas
        film, genres and title, by film.
    users : int
        Their number.
    wanted : dict of arrays
        By user the films to be recommended; -1 for one that is not among `films`.
    """

    known: pd.DataFrame
    films: pd.DataFrame
    users: int
    wanted: dict[int, Array]

    @property
    def seen(self) -> dict[int, Array]:
        """By user the films known to be liked."""
        return {user: films.to_numpy() for user, films in self.known.groupby("user")["film"]}


def read(directory: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Ratings (user, movie, rating, timestamp) and movies (movie, title, genres)."""
    found = []
    for name in ("ratings.csv", "movies.csv"):
        frame = pd.read_csv(data_file(directory, "movielens-small", name))
        found.append(frame.rename(columns=lambda column: column.lower().removesuffix("id")))
    return found[0], found[1]


def split(ratings: pd.DataFrame, share: float = KNOWN) -> pd.Series:
    """Whether each row is among the first `share` of its user's in the order of time, rounded up to whole rows."""
    ordered = ratings.sort_values(["user", "timestamp", "movie"], kind="stable")
    by_user = ordered.groupby("user")["movie"]
    return (by_user.cumcount() < np.ceil(share * by_user.transform("size"))).reindex(ratings.index)


def likes(ratings: pd.DataFrame, movies: pd.DataFrame, validate: bool = False) -> Likes:
    """What is known, and what is to be recommended."""
    liked = ratings[ratings["rating"] >= LIKED]
    if validate:
        liked = liked[split(liked)]
    early = split(liked)
    known, late = liked[early], liked[~early]
    numbers = {name: {value: at for at, value in enumerate(sorted(set(known[name])))} for name in ("user", "movie")}
    titled = movies.set_index("movie").reindex(list(numbers["movie"]))
    films = pd.DataFrame(
        {
            "film": np.arange(len(titled)),
            "genres": pd.factorize(titled["genres"].fillna(""), sort=True)[0],
            "title": titled["title"].to_numpy(),
        }
    )
    rows = pd.DataFrame({"user": known["user"].map(numbers["user"]), "film": known["movie"].map(numbers["movie"])})
    rows["often"] = rows.groupby("film")["film"].transform("size")
    rows = rows.merge(films[["film", "genres"]], on="film")
    wanted = {
        numbers["user"][user]: own.map(numbers["movie"]).fillna(-1).astype(int).to_numpy()
        for user, own in late.groupby("user")["movie"]
    }
    return Likes(rows, films, len(numbers["user"]), wanted)


def towers(found: Likes) -> Graph:
    """The network."""
    genres = int(found.films["genres"].max()) + 1
    return models.two_tower(
        {"user": Embedding(found.users, SIZE)},
        {"film": Embedding(len(found.films), SIZE), "genres": Embedding(genres, SIZE)},
        size=SIZE,
        units=(),
        pairs=True,
    )


def ours(session: SparkSession, network: Graph, weights: Weights, found: Likes, epochs: int, seed: int) -> Array:
    """Scores by a fit on Spark and its towers as Transformers."""
    estimator = DeepEstimator(
        network=network,
        featuresCols={name: name for name in network.inputs},
        labelCol="film_often",
        loss=InBatchSoftmax(TEMPERATURE, corrected=True),
        optimizer=AdamW(schedule=CosineDecay(), weight_decay=DECAY),
        initialModel=weights,
        stepSize=STEP_SIZE,
        batchSize=BATCH,
        maxIter=epochs,
        numWorkers=2,
        seed=seed,
        progress="off",
    )
    rows = session.createDataFrame(found.known).selectExpr("*", "array(film, often) as film_often").cache()
    model = estimator.fit(rows)
    users = session.range(found.users).withColumnRenamed("id", "user")
    films = session.createDataFrame(found.films[["film", "genres"]])
    return vectors(model, "query", users, "user") @ vectors(model, "item", films, "film").T


def vectors(model: DeepModel, tower: str, rows: DataFrame, key: str) -> Array:
    """What a tower makes of rows, in the order of their numbers."""
    collected = model.up_to(tower).transform(rows).orderBy(key).select("prediction").collect()
    return np.array([row.prediction.toArray() for row in collected])


def theirs(network: Graph, weights: Weights, found: Likes, epochs: int, seed: int) -> Array:
    """Scores by PyTorch."""
    import torch
    from contestants import tables_torch

    def loss(pairs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = pairs[:, 0] @ pairs[:, 1].T / TEMPERATURE - labels[:, 1].log()
        return (scores.logsumexp(dim=1) - scores.diagonal()).mean()

    model = tables_torch.Module(network, weights)
    tables_torch.train(
        model,
        {name: found.known[name].to_numpy() for name in network.inputs},
        loss,
        found.known[["film", "often"]].to_numpy(np.float32),
        epochs=epochs,
        batch=BATCH,
        step_size=STEP_SIZE,
        weight_decay=DECAY,
        seed=seed,
    )
    films = found.films
    given = {"film": films["film"].to_numpy(), "genres": films["genres"].to_numpy()}
    with torch.no_grad():
        # a pair has both: users with any film, and films with any user
        first = {name: np.zeros(found.users, int) for name in given}
        queries = model(tables_torch.tensors({"user": np.arange(found.users)} | first))[:, 0]
        items = model(tables_torch.tensors({"user": np.zeros(len(films), int)} | given))[:, 1]
    return (queries @ items.T).numpy()


def als(session: SparkSession, found: Likes) -> Array:
    """Scores by Spark ML's factors of implicit preferences."""
    rows = session.createDataFrame(found.known[["user", "film"]]).selectExpr("int(user)", "int(film)", "1.0 as liked")
    learner = ALS(userCol="user", itemCol="film", ratingCol="liked", implicitPrefs=True, seed=0, **ALS_OPTIONS)
    with TemporaryDirectory() as folder:  # without checkpoints the JVM's stack may overflow
        session.sparkContext.setCheckpointDir(folder)
        model = learner.fit(rows)
        factors = []
        for frame, count in ((model.userFactors, found.users), (model.itemFactors, len(found.films))):
            table = np.zeros((count, model.rank))
            for row in frame.collect():
                table[row.id] = row.features
            factors.append(table)
    return factors[0] @ factors[1].T


def popularity(found: Likes) -> Array:
    """Scores by how many like a film."""
    often = np.bincount(found.known["film"], minlength=len(found.films))
    return np.tile(often.astype(np.float32), (found.users, 1))


def neighbours(found: Likes) -> Array:
    """Scores by the films that are liked by the same users."""
    liked = np.zeros((found.users, len(found.films)), np.float32)
    liked[found.known["user"], found.known["film"]] = 1
    unit = liked / np.sqrt(liked.sum(axis=0))
    cosines = unit.T @ unit
    np.fill_diagonal(cosines, 0)
    return liked @ cosines


def main() -> None:
    """Measure, print, write."""
    options = parse(__doc__, "ratings.csv and movies.csv", "recommend what comes before the last fifth")
    directory = data_folder(options.data, "nothing is measured")
    if directory is None:
        return
    epochs, seeds = (5, 1) if options.quick else (20, 3)
    found = likes(*read(directory), validate=options.validate)
    wanted = sum(map(len, found.wanted.values()))
    print(f"{found.users} users like {len(found.known):,} times {len(found.films):,} films; {wanted:,} to recommend")
    session = local_session("local[2]", **{"spark.driver.memory": "2g"})
    network = towers(found)
    contestants: dict[str, list[Callable[[], Array]]] = {
        "popularity": [lambda: popularity(found)],
        "neighbours": [lambda: neighbours(found)],
        "als": [lambda: als(session, found)],
        "towers": [partial(ours, session, network, network.init(seed), found, epochs, seed) for seed in range(seeds)],
        "torch": [partial(theirs, network, network.init(seed), found, epochs, seed) for seed in range(seeds)],
    }
    if not has_torch():
        del contestants["torch"]
    figures = {}
    print(f"{'contestant':<14}{'recall@20':>10}{'over popularity':>17}  of each")
    for name, runs in contestants.items():
        each = [recall(scores(), found.seen, found.wanted, FIRST) for scores in runs]
        own = figures[f"recall_{name}"] = float(np.mean(each))
        listed = " ".join(f"{value:.4f}" for value in each)
        print(f"{name:<14}{own:>10.4f}{own / figures['recall_popularity']:>17.3f}  {listed}", flush=True)
    for name in ("popularity", "als", "torch"):
        if f"recall_{name}" in figures:
            figures[f"recall_over_{name}"] = figures["recall_towers"] / figures[f"recall_{name}"]
    for name, value in figures.items():
        print(f"{name} {value:.4f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
