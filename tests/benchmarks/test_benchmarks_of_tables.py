"""benchmarks/adult.py, movielens.py and forecasts.py split and measure as they say, and give PyTorch what we train."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import adult
import forecasts
import movielens
from contestants.ranking import recall, roc_area

from sparkdl import Graph, models
from sparkdl.layers import Normalization

FOLDER = Path(adult.__file__).parent
RANDOM = np.random.default_rng(2)


def test_roc_area_is_the_chance_that_one_ranks_above_zero() -> None:
    scores, labels = RANDOM.integers(0, 9, 60).astype(float), RANDOM.integers(0, 2, 60)
    pairs = [(one, zero) for one in scores[labels == 1] for zero in scores[labels == 0]]
    chance = sum(1.0 if one > zero else 0.5 if one == zero else 0.0 for one, zero in pairs) / len(pairs)
    assert roc_area(scores, labels) == pytest.approx(chance, rel=1e-12)


def test_recall_is_the_share_of_what_is_wanted_among_the_first_unseen() -> None:
    scores = RANDOM.permutation(7 * 12).reshape(7, 12).astype("float32")
    seen = {user: RANDOM.choice(12, 4, replace=False) for user in range(6)}  # user 6 has seen nothing
    wanted = {user: np.setdiff1d(np.arange(12), seen.get(user, []))[: user % 4] for user in range(7)}
    wanted[6] = np.array([-1, 3, -1])
    shares = []
    for user, items in wanted.items():
        ranked = sorted((-scores[user, item], item) for item in range(12) if item not in set(seen.get(user, [])))
        best = [item for _, item in ranked[:3]]
        if len(items):
            shares.append(sum(item in best for item in items) / len(items))
    assert recall(scores, seen, wanted, 3) == pytest.approx(np.mean(shares))


def ratings() -> pd.DataFrame:
    """Of 5 users, in no order of time, some below 4; no user rates a film twice."""
    rows = [
        (user, movie, rating, int(time))
        for user in range(10, 15)
        for movie, rating, time in zip(
            RANDOM.choice(30, 17, replace=False) * 10, [3.0, *[4.5] * 16], RANDOM.integers(0, 9, 17), strict=True
        )
    ]
    return pd.DataFrame(rows, columns=["user", "movie", "rating", "timestamp"]).sample(frac=1, random_state=0)


def test_the_last_fifth_of_each_user_is_recommended() -> None:
    given = ratings()
    movies = pd.DataFrame({"movie": range(0, 300, 10), "title": "", "genres": [f"g{n % 3}" for n in range(30)]})
    found = movielens.likes(given, movies)
    for user in range(10, 15):
        own = sorted((r.timestamp, r.movie) for r in given.itertuples() if r.user == user and r.rating >= 4)
        assert len(own) == 16
        known, late = [movie for _, movie in own[:13]], [movie for _, movie in own[13:]]
        films = {movie: at for at, movie in enumerate(sorted({*found_movies(given)}))}
        assert sorted(found.seen[user - 10]) == sorted(films[movie] for movie in known)
        assert sorted(found.wanted[user - 10]) == sorted(films.get(movie, -1) for movie in late)
    assert found.users == 5
    counts = found.known.groupby("film").size()
    assert (found.known["often"] == found.known["film"].map(counts)).all()
    genres = movies.set_index("movie")["genres"]
    for row in found.known.itertuples():
        assert f"g{row.genres}" == genres[sorted(found_movies(given))[row.film]]


def found_movies(given: pd.DataFrame) -> set[int]:
    """Those that are among the first 13 that some user likes."""
    known = set()
    for _, own in given[given["rating"] >= 4].groupby("user"):
        known |= {movie for _, movie in sorted(zip(own["timestamp"], own["movie"], strict=True))[:13]}
    return known


def test_validation_never_sees_what_is_tested() -> None:
    given = ratings()
    movies = pd.DataFrame({"movie": range(0, 300, 10), "title": "", "genres": ""})
    whole, part = movielens.likes(given, movies), movielens.likes(given, movies, validate=True)
    assert len(part.known) + sum(map(len, part.wanted.values())) == len(whole.known)
    titles = movielens.likes(given, movies.assign(title=movies["movie"].astype(str)), validate=True).films["title"]
    assert set(titles.astype(int)) <= found_movies(given)


TOWERS = models.two_tower({"user": 5}, {"film": 7, "genre": 3}, size=4, units=(6,), pairs=True)
WIDE = models.wide_and_deep(
    {"city": 6, "job": 4}, Normalization((1.0, -2, 3), (4.0, 0.25, 0)), outputs=1, units=(8,), dropout=0.5
)
SERIES = models.forecaster(
    Normalization((1.0, -2, 3), (4.0, 0.25, 1)), 4, known=2, window=6, **forecasts.OPTIONS, **forecasts.NETWORKS["lstm"]
)


@pytest.mark.parametrize("network", [TOWERS, WIDE, SERIES], ids=["two towers", "wide and deep", "series"])
def test_torch_computes_what_our_networks_do(network: Graph) -> None:
    torch = pytest.importorskip("torch")
    from contestants import tables_torch

    weights = network.init(3)
    sizes = {"user": 6, "film": 8, "genre": 4, "city": 7, "job": 5}  # one more than there are: the unknown
    features: dict[str, Any] = {
        name: RANDOM.normal(size=(9, *shape)).astype("float32")
        if shape
        else RANDOM.integers(0, sizes[name], 9, "int32")
        for name, shape in network.inputs.items()
    }
    expected = network.forward(weights, tuple(map(jnp.asarray, features.values())))
    with torch.no_grad():
        found = tables_torch.Module(network, weights).eval()(tables_torch.tensors(features))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def lines(count: int, end: str = "") -> str:
    """Rows like those of adult.data, of whom those with more schooling earn more."""
    made = []
    for _ in range(count):
        years, age = RANDOM.integers(1, 17), RANDOM.integers(17, 80)
        income = ">50K" if years + RANDOM.normal() > 9 else "<=50K"
        job = RANDOM.choice(["Sales", "?", "Tech-support"])
        rest = "Wife, White, Male, 0, 0, 40, Cuba"
        made.append(f"{age}, Private, 1, grade {years}, {years}, Divorced, {job}, {rest}, {income}{end}")
    return "\n".join(made) + "\n\n"


def run(script: str, *arguments: str, data: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / script), *arguments]
    environment = os.environ | {"SPARKDL_DATA": data, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # programs run a few times
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


def test_adult_prints_its_figures(tmp_path: Path) -> None:
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.data").write_text(lines(3000))
    (tmp_path / "adult" / "adult.test").write_text("|1x3 Cross validator\n" + lines(200, "."))
    done = run("adult.py", "--quick", "--json", str(tmp_path / "figures.json"), data=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "3,000 rows to train on, 200 to test" in done.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    for metric in adult.Found._fields:
        own = {name for name in figures if name.startswith(metric)}
        beside = {f"{metric}_torch", f"{metric}_difference"}
        assert own - beside == {metric, f"{metric}_gbt", f"{metric}_logistic"}
        assert all(0 < figures[name] <= 1 for name in own - {f"{metric}_difference"})
    assert min(figures["auc"], figures["auc_gbt"], figures["auc_logistic"]) > 0.6


def test_movielens_prints_its_figures(tmp_path: Path) -> None:
    """Users like the films of their own half, of which each has rated some."""
    rows = [
        f"{user},{movie},{5.0 if movie % 2 == user % 2 else 1.0},{RANDOM.integers(1000)}"
        for user in range(30)
        for movie in RANDOM.choice(80, 40, replace=False)
    ]
    (tmp_path / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *rows]))
    films = [f"{movie},Film {movie},{'Drama' if movie % 2 else 'Comedy|War'}" for movie in range(80)]
    (tmp_path / "movies.csv").write_text("\n".join(["movieId,title,genres", *films]))
    done = run("movielens.py", "--quick", "--data", str(tmp_path), "--json", str(tmp_path / "figures.json"))
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert {f"recall_{name}" for name in ("towers", "popularity", "als", "neighbours")} <= figures.keys()
    assert figures["recall_over_popularity"] > 1
    assert figures["recall_over_als"] == pytest.approx(figures["recall_towers"] / figures["recall_als"])


def test_forecasts_prints_its_figures(tmp_path: Path) -> None:
    """Hours of a temperature that follows the hour of day and ends with the months of the test."""
    times = pd.date_range("2016-07-01", periods=20 * 30 * 24, freq="h")
    table = pd.DataFrame({"date": times}).assign(**dict.fromkeys(("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL"), 0.0))
    table["OT"] = 20 + 8 * np.sin(2 * np.pi * times.hour / 24) + RANDOM.normal(0, 0.5, len(times))
    table.to_csv(tmp_path / "ETTh1.csv", index=False)
    done = run("forecasts.py", "--quick", "--data", str(tmp_path), "--json", str(tmp_path / "figures.json"))
    assert done.returncode == 0, done.stderr
    assert "8,593 windows to train on, 2,857 of the test months" in done.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert {f"ett_{name}" for name in ("mae", "mse", "conv_mae", "mae_yesterday", "mae_last")} <= figures.keys()
    assert figures["ett_mae_yesterday"] == pytest.approx(0.5 * 2 / np.sqrt(np.pi), rel=0.02)  # of two normal draws
    assert max(figures["ett_mae"], figures["ett_conv_mae"]) < figures["ett_mae_last"] / 2
    if "ett_mae_torch" in figures:
        assert figures["ett_mae_over_torch"] == pytest.approx(figures["ett_mae"] / figures["ett_mae_torch"])


@pytest.mark.parametrize("script", [adult, forecasts, movielens], ids=lambda script: script.__name__)
def test_without_data_nothing_is_measured(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SPARKDL_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", [f"{script.__name__}.py", "--quick"])
    script.main()
    assert "nothing is measured" in capsys.readouterr().out
