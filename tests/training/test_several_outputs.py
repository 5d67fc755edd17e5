"""Several outputs: each one's mean is over the rows that have its label, whatever the workers hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparkdl import Graph, Network, training
from sparkdl.layers import Concatenate, Dense, Reshape, Tanh
from sparkdl.losses import EachPosition
from sparkdl.training import Checkpoints, EarlyStopping
from sparkdl.weights import named_arrays

pytestmark = pytest.mark.usefixtures("unoptimized")

RANDOM = np.random.default_rng(5)
ROWS = 44
GRAPH = Graph(
    inputs={"facts": (4,), "age": ()},
    nodes={
        "seen": (Network([Dense(6), Tanh()]), "facts"),
        "both": (Concatenate(), "seen", "age"),
        "kind": (Dense(3), "both"),
        "price": (Dense(2, l2=0.1), "both"),
    },
    outputs=("kind", "price"),
)
FEATURES = {"facts": RANDOM.normal(size=(ROWS, 4)), "age": RANDOM.normal(size=ROWS)}
KIND = np.where(np.arange(ROWS) % 3 == 0, np.nan, RANDOM.integers(0, 3, ROWS))
PRICE = np.where((np.arange(ROWS) < 15)[:, None], np.nan, RANDOM.normal(size=(ROWS, 2)))  # of which steps have none
WEIGHTS = RANDOM.uniform(0, 2, ROWS)
DATA = (FEATURES, {"kind": KIND, "price": PRICE}, WEIGHTS)
LOSS = {"price": "squared_error", "kind": "softmax_cross_entropy"}
OPTIONS: dict[str, Any] = {
    "loss": LOSS,
    "loss_weights": {"price": 0.3},
    "optimizer": "sgd",
    "step_size": 0.2,
    "batch_size": 11,
    "epochs": 2,
    "shuffle": False,
    "dtype": "float64",
}


def reference(steps: list[np.ndarray[Any, Any]], start: dict[str, Any]) -> dict[str, Any]:
    """SGD in NumPy, on the rows of each step."""
    w = {name: np.array(array, np.float64) for name, array in start.items()}
    for rows in steps:
        facts, age, weight = FEATURES["facts"][rows], FEATURES["age"][rows], WEIGHTS[rows]
        hidden = np.tanh(facts @ w["seen/dense_0/kernel"] + w["seen/dense_0/bias"])
        both = np.concatenate([hidden, age[:, None]], axis=1)
        scores, prices = (both @ w[f"{name}/kernel"] + w[f"{name}/bias"] for name in ("kind", "price"))
        has_kind, has_price = ~np.isnan(KIND[rows]), ~np.isnan(PRICE[rows]).any(axis=1)
        softmax = np.exp(scores - scores.max(axis=1, keepdims=True))
        softmax /= softmax.sum(axis=1, keepdims=True)
        truth = np.eye(3)[np.nan_to_num(KIND[rows]).astype(int)]
        share = {}
        for name, has, slope, factor in (
            ("kind", has_kind, softmax - truth, 1.0),
            ("price", has_price, 2 * (prices - np.nan_to_num(PRICE[rows])), 0.3),
        ):
            total = weight[has].sum()
            share[name] = factor * (weight * has)[:, None] * slope / (total if total else 1)
        dboth = sum(share[name] @ w[f"{name}/kernel"].T for name in share)
        dhidden = dboth[:, :6] * (1 - hidden**2)
        gradient = {
            "seen/dense_0/kernel": facts.T @ dhidden,
            "seen/dense_0/bias": dhidden.sum(axis=0),
            **{f"{name}/kernel": both.T @ share[name] for name in share},
            **{f"{name}/bias": share[name].sum(axis=0) for name in share},
        }
        gradient["price/kernel"] += 0.1 * w["price/kernel"]
        w = {name: array - 0.2 * gradient[name] for name, array in w.items()}
    return w


def start() -> dict[str, Any]:
    return training.fit(GRAPH, DATA, **{**OPTIONS, "epochs": 0}).weights


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_each_output_s_mean_is_over_its_own_labels(devices: int) -> None:
    """Rows are dealt out like cards: a step's are those of which every worker holds its part."""
    result = training.fit(GRAPH, DATA, devices=devices, **OPTIONS)
    shards = [np.arange(ROWS)[device::devices] for device in range(devices)]
    steps = training.data.batches.Steps(tuple(map(len, shards)), 11)
    rows = [
        np.concatenate([shard[slice(*steps.bounds(worker, step))] for worker, shard in enumerate(shards)])
        for step in range(steps.count)
    ]
    expected = reference(rows * 2, dict(named_arrays(start())))
    for name, array in named_arrays(result.weights):
        np.testing.assert_allclose(array, expected[name], rtol=0, atol=1e-12, err_msg=name)


def test_the_history_tells_of_every_output() -> None:
    result = training.fit(GRAPH, DATA, validation=DATA, **{**OPTIONS, "step_size": 1e-12})
    w = dict(named_arrays(result.weights))
    both = np.concatenate(
        [np.tanh(FEATURES["facts"] @ w["seen/dense_0/kernel"] + w["seen/dense_0/bias"]), FEATURES["age"][:, None]],
        axis=1,
    )
    scores, prices = (both @ w[f"{name}/kernel"] + w[f"{name}/bias"] for name in ("kind", "price"))
    has_kind, has_price = ~np.isnan(KIND), ~np.isnan(PRICE).any(axis=1)
    classes = KIND[has_kind].astype(int)
    own = WEIGHTS[has_kind]
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    kind = -(own * logs[has_kind][np.arange(len(classes)), classes]).sum() / own.sum()
    accuracy = (own * (scores[has_kind].argmax(axis=1) == classes)).sum() / own.sum()
    errors = ((prices - PRICE)[has_price] ** 2).sum(axis=1)
    price = (WEIGHTS[has_price] * errors).sum() / WEIGHTS[has_price].sum()
    last = result.history[-1]
    assert last.outputs is not None and last.metric is None
    for which in ("", "validation_"):
        assert last.outputs["kind"][f"{which}loss"] == pytest.approx(kind, abs=1e-9)
        assert last.outputs["kind"][f"{which}metric"] == pytest.approx(accuracy, abs=1e-9)
        assert last.outputs["price"][f"{which}loss"] == pytest.approx(price, abs=1e-9)
        total = kind + 0.3 * price + 0.05 * (w["price/kernel"] ** 2).sum()
        assert getattr(last, f"{which}loss") == pytest.approx(total, abs=1e-9)


def test_an_output_without_any_label_learns_nothing_and_harms_nothing() -> None:
    unlabelled = (FEATURES, {"kind": KIND, "price": np.full((ROWS, 2), np.nan)}, WEIGHTS)
    result = training.fit(GRAPH, unlabelled, **{**OPTIONS, "loss_weights": {}})
    alone = training.fit(
        GRAPH.up_to("kind"),
        unlabelled_of_kind(),
        initial={name: own for name, own in start().items() if name != "price"},
        **{**OPTIONS, "loss": "softmax_cross_entropy", "loss_weights": None},
    )
    for name, array in named_arrays(alone.weights):
        np.testing.assert_allclose(dict(named_arrays(result.weights))[name], array, rtol=0, atol=1e-12, err_msg=name)
    assert np.isfinite(result.history[-1].loss)
    (note,) = result.notes
    assert note.startswith("Output 'price' has no label in any row to train on that weighs more than 0")
    assert training.fit(GRAPH, DATA, **OPTIONS).notes == []


def unlabelled_of_kind() -> tuple[Any, ...]:
    """The rows for one output, of which those without a label weigh nothing."""
    return FEATURES, {"kind": np.nan_to_num(KIND)}, np.where(np.isnan(KIND), 0, WEIGHTS)


def test_an_output_may_have_a_class_at_each_position() -> None:
    kinds_of = Network([Dense(6), Reshape((2, 3))])
    nodes = {"kinds": (kinds_of, "facts"), "price": (Dense(1), "facts")}
    graph = Graph({"facts": (4,)}, nodes, ("kinds", "price"))
    kinds = np.where((np.arange(ROWS) % 3 == 0)[:, None], np.nan, RANDOM.integers(0, 3, (ROWS, 2)))
    data = ({"facts": FEATURES["facts"]}, {"kinds": kinds, "price": PRICE[:, 0]}, WEIGHTS)
    loss = {"kinds": EachPosition(), "price": "squared_error"}
    result = training.fit(graph, data, validation=data, **{**OPTIONS, "loss": loss, "step_size": 1e-12})
    w = dict(named_arrays(result.weights))
    scores = (FEATURES["facts"] @ w["kinds/dense_0/kernel"] + w["kinds/dense_0/bias"]).reshape(ROWS, 2, 3)
    logs, has = scores - np.log(np.exp(scores).sum(axis=2, keepdims=True)), ~np.isnan(kinds).any(axis=1)
    losses = -np.take_along_axis(logs[has], kinds[has].astype(int)[..., None], 2).mean(axis=(1, 2))
    found = (result.history[-1].outputs or {})["kinds"]
    assert found["loss"] == pytest.approx(np.average(losses, weights=WEIGHTS[has]), abs=1e-9)
    assert found["validation_loss"] == pytest.approx(found["loss"], abs=1e-9)


def test_some_of_its_positions_may_be_ignored() -> None:
    kinds_of = Network([Dense(6), Reshape((2, 3))])
    nodes = {"kinds": (kinds_of, "facts"), "price": (Dense(1), "facts")}
    graph = Graph({"facts": (4,)}, nodes, ("kinds", "price"))
    kinds = np.where(RANDOM.uniform(size=(ROWS, 2)) < 0.4, 255.0, RANDOM.integers(0, 3, (ROWS, 2)))
    kinds[:3] = 255, np.nan  # of the first rows, no position has a class: as of a row without the label
    kinds[0] = 255
    data = ({"facts": FEATURES["facts"]}, {"kinds": kinds, "price": PRICE[:, 0]}, WEIGHTS)
    loss = {"kinds": EachPosition(ignore_class=255), "price": "squared_error"}
    result = training.fit(graph, data, validation=data, **{**OPTIONS, "loss": loss, "step_size": 1e-12})
    w = dict(named_arrays(result.weights))
    scores = (FEATURES["facts"] @ w["kinds/dense_0/kernel"] + w["kinds/dense_0/bias"]).reshape(ROWS, 2, 3)
    logs = scores - np.log(np.exp(scores).sum(axis=2, keepdims=True))
    known = (kinds < 3) & ~np.isnan(kinds).any(axis=1, keepdims=True)
    each = -np.take_along_axis(logs, np.where(known, kinds, 0).astype(int)[..., None], 2)[..., 0]
    has = known.any(axis=1)
    losses = (each * known).sum(axis=1)[has] / known.sum(axis=1)[has]
    found = (result.history[-1].outputs or {})["kinds"]
    assert found["loss"] == pytest.approx(np.average(losses, weights=WEIGHTS[has]), abs=1e-9)
    assert found["validation_loss"] == pytest.approx(found["loss"], abs=1e-9)


def test_early_stopping_watches_an_output() -> None:
    stopping = EarlyStopping("validation_metric", patience=1, output="kind", min_delta=1.0)
    result = training.fit(GRAPH, DATA, validation=DATA, early_stopping=stopping, **{**OPTIONS, "epochs": 6})
    assert len(result.history) == 2 and result.checks[0][2] == result.history[0].outputs["kind"]["validation_metric"]
    for wrong, message in (
        (replace(stopping, output=None), "output of EarlyStopping must say whose"),
        (replace(stopping, output="size"), "output of EarlyStopping is 'size'; name one of 'kind', 'price'"),
    ):
        with pytest.raises(ValueError, match=message):
            training.fit(GRAPH, DATA, validation=DATA, early_stopping=wrong, **OPTIONS)


@pytest.mark.parametrize("every", [1, 3])
def test_a_run_goes_on_from_its_checkpoint_to_the_bit(tmp_path: Path, every: int) -> None:
    unit = "epoch" if every == 1 else "step"
    kept = {**OPTIONS, "checkpoints": Checkpoints(str(tmp_path), every=every, unit=unit), "shuffle": True}
    training.fit(GRAPH, DATA, validation=DATA, **{**kept, "epochs": 1})
    resumed = training.fit(GRAPH, DATA, validation=DATA, **{**kept, "epochs": 3})
    whole = training.fit(GRAPH, DATA, validation=DATA, **{**OPTIONS, "shuffle": True, "epochs": 3})
    assert resumed.resumed and resumed.history[-1].outputs == whole.history[-1].outputs
    for name, array in named_arrays(resumed.weights):
        assert np.array_equal(array, dict(named_arrays(whole.weights))[name]), name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "squared_error"}, "loss must be a dict by output, 'kind', 'price', received"),
        ({"loss": {"kind": "softmax_cross_entropy"}}, "loss must have one for each of 'kind', 'price'"),
        ({"loss": {**LOSS, "price": "softmax"}}, "Loss is expected"),
        ({"loss_weights": {"size": 1.0}}, "loss_weights names 'size'"),
        ({"loss_weights": {"price": -1.0}}, "loss_weights must be finite and at least 0"),
        ({"loss": {"kind": "cosine_similarity", "price": "kl_divergence"}}, "Output 'kind'"),
    ],
)
def test_losses_that_do_not_go_by_outputs_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        training.fit(GRAPH, DATA, **{**OPTIONS, **changes})


def test_labels_that_do_not_fit_their_output_are_named() -> None:
    with pytest.raises(ValueError, match=r"Output 'kind': Labels must be whole numbers from 0 to 2.*received 7"):
        training.fit(GRAPH, (FEATURES, {"kind": KIND + 7, "price": PRICE}), **OPTIONS)
    with pytest.raises(ValueError, match="labels must have the names 'kind', 'price'"):
        training.fit(GRAPH, (FEATURES, {"kind": KIND}), **OPTIONS)
