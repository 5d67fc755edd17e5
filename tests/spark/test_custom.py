"""Classes of a user's own: trained in processes that have never heard of them, saved, and loaded where they are known.

Run as a program, this file is the user's: its layer is a class of `__main__`, its loss one of a module beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import own_parts
import pyspark
import pytest
from own_parts import Pinball
from pyspark.sql import SparkSession
from spark_cases import FEATURES, UNOPTIMIZED, arrays, assert_close, table

from sparkdl import DeepEstimator, DeepModel, Network, specs, training
from sparkdl.classes import install
from sparkdl.layers import Dense, Rescale
from sparkdl.layers.base import Array, Layer, Shape, Weights, jitted
from sparkdl.spark import local_session
from sparkdl.spark.driver.old_spark import from_arrow
from sparkdl.spark.driver.shipping import packed_classes
from sparkdl.specs import Spec
from sparkdl.weights import named_arrays

SETTINGS = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 2}


@jax.jit
def squashed(x: Array) -> Array:
    """x, kept within the limit either way."""
    return own_parts.LIMIT * jnp.tanh(x / own_parts.LIMIT)


@dataclass(frozen=True)
class Gained(Layer):
    """y = gain * squashed(x), with a learned gain for every value of a row.

    x, y     (batch, values)
    weights  gain (values,)
    """

    start: float = 1.0

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def init(self, key: Array, input_shape: Shape) -> Weights:
        return {"gain": jnp.full(input_shape, self.start)}

    @jitted
    def forward(self, weights: Weights, x: Array) -> Array:
        return weights["gain"][None] * squashed(x)

    @jitted
    def delta(self, weights: Weights, x: Array, y: Array, dy: Array) -> Array:
        return dy * weights["gain"][None] * (1 - (squashed(x) / own_parts.LIMIT) ** 2)

    @jitted
    def gradient(self, weights: Weights, x: Array, y: Array, dy: Array) -> Weights:
        return {"gain": (dy * squashed(x)).sum(axis=0)}


@dataclass(frozen=True)
class Picky(Layer):
    """Fails for the rows of a training step, and not when it is first looked at."""

    def forward(self, weights: Weights, x: Array) -> Array:
        return x if len(x) in (1, 7) else weights["w"]  # here


def network() -> Network:
    """With whatever is called `Gained` by now."""
    return Network([Rescale(1 / 255), Dense(3), Gained(0.5, name="own"), Dense(1)], input_shape=(4,))


def estimator(**params: Any) -> DeepEstimator:
    fixed = {"network": network(), "loss": Pinball(0.7), "maxIter": 4, "batchSize": 24, "stepSize": 0.1}
    return DeepEstimator(**(fixed | params))


# The user's program.

NEW_CELL = """
@dataclass(frozen=True)
class Gained(Gained):
    @jitted
    def forward(self, weights, x):
        return -weights["gain"][None] * squashed(x)

    delta, gradient = Layer.delta, Layer.gradient
"""
SAME_CELL = """
@dataclass(frozen=True)
class Gained(Gained): ...
"""
INSTALLED = """
from own_parts import Pinball

class Refined(Pinball): ...
"""


def train(folder: Path) -> None:
    """In Python workers, which know nothing of this program: what a notebook does with its classes, and what comes."""
    session = local_session("local[2]", **SETTINGS)
    own_parts.ABOVE = jnp.asarray(own_parts.ABOVE)  # a user's constants may be JAX's
    rows = from_arrow(session, table())
    kept = {"numWorkers": 2, "checkpointDir": str(folder / "checkpoints")}
    model = estimator(**kept, activationCols={"own": "hidden"}).fit(rows)
    found: dict[str, Any] = {"weights": {name: array.tolist() for name, array in arrays(model).items()}}

    def predictions(scores: Any) -> list[float]:
        return [row.prediction for row in scores.orderBy("id").collect()]

    scored = model.score_rows(model.transform(rows))
    found["scored"] = scored.orderBy("id").select("prediction", "hidden", "loss").toPandas().map(np.ravel).map(list)
    found["scored"] = found["scored"].to_dict("list")
    found["mean loss"] = model.evaluate(rows).loss
    model.write().overwrite().save(str(folder / "model"))

    try:
        estimator(network=Network([Picky(), Dense(1)], input_shape=(4,))).fit(rows)
    except RuntimeError as error:
        found["picky"] = str(error)

    before = model.transform(rows)
    found["resumed"] = [estimator(**kept).fit(rows).summary.resumedFrom]
    exec(NEW_CELL, globals())
    found["new cell"] = predictions(model.transform(rows)), predictions(before)
    renewed = estimator(**kept).fit(rows)
    found["resumed"].append(renewed.summary.resumedFrom)
    found["fit of the new cell"] = {name: array.tolist() for name, array in arrays(renewed).items()}

    here = folder / "site-packages"  # which only this machine has
    here.mkdir()
    (here / "installed_parts.py").write_text(INSTALLED)
    sys.path.insert(0, str(here))
    import installed_parts  # type: ignore[import-not-found]

    try:
        estimator(loss=installed_parts.Refined()).fit(rows)
    except ValueError as error:
        found["error"] = str(error)
    found["sockets"] = session.sparkContext.getConf().get("spark.python.unix.domain.socket.dir")
    assert any(Path(found["sockets"]).iterdir()) or pyspark.__version__ < "4.1"
    (folder / "found.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `train` has left its model and `found.json`."""
    folder = tmp_path_factory.mktemp("custom")
    done = subprocess.run(
        [sys.executable, __file__, str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {UNOPTIMIZED[0]: UNOPTIMIZED[1]},
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    """What `train` has found."""
    return json.loads((folder / "found.json").read_text())


# Tests.


def test_the_session_s_sockets_have_gone_with_its_program(found: dict[str, Any]) -> None:
    assert not Path(found["sockets"]).exists()


def test_the_layer_s_kernels_are_the_derivatives_of_its_forward(float64: None) -> None:
    x, dy = np.random.default_rng(5).normal(size=(2, 6, 3))
    weights = {"gain": jnp.array([0.5, -1.0, 2.0])}
    y, pullback = jax.vjp(Gained().forward, weights, x)
    gradient, delta = pullback(dy)
    np.testing.assert_allclose(Gained().delta(weights, x, y, dy), delta, rtol=1e-12)
    np.testing.assert_allclose(Gained().gradient(weights, x, y, dy)["gain"], gradient["gain"], rtol=1e-12)


def test_the_loss_s_slopes_are_its_derivatives(float64: None) -> None:
    outputs, targets = np.random.default_rng(6).normal(size=(2, 7, 1))
    expected = jax.grad(lambda rows: Pinball(0.3).losses(rows, targets).sum())(outputs)
    np.testing.assert_allclose(Pinball(0.3).slopes(outputs, targets), expected, rtol=1e-12)


def test_workers_train_what_one_process_trains(found: dict[str, Any]) -> None:
    labels = table()["label"].to_numpy().astype(float)
    result = training.fit(
        network(), (FEATURES.astype("float32"), labels), loss=Pinball(0.7), step_size=0.1, epochs=4, batch_size=24
    )
    weights = {name: np.array(value, "float32") for name, value in found["weights"].items()}
    assert_close(weights, dict(named_arrays(result.weights)), 1e-5)


def test_workers_score_with_them(found: dict[str, Any]) -> None:
    weights = {name: np.array(value) for name, value in found["weights"].items()}
    hidden = (
        weights["own/gain"] * 2 * np.tanh((FEATURES / 255 @ weights["dense_1/kernel"] + weights["dense_1/bias"]) / 2)
    )
    outputs = (hidden @ weights["dense_3/kernel"] + weights["dense_3/bias"])[:, 0]
    excess = table()["label"].to_numpy() - outputs
    losses = np.maximum(0.7 * excess, -0.3 * excess)
    for name, expected in (("prediction", outputs[:, None]), ("hidden", hidden), ("loss", losses[:, None])):
        np.testing.assert_allclose(found["scored"][name], expected, rtol=0, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(found["mean loss"], losses.mean(), rtol=1e-5)


def test_a_class_defined_anew_is_the_one_that_runs(found: dict[str, Any]) -> None:
    """In Python workers that know the one before; a DataFrame from before keeps that."""
    weights = {name: np.array(value) for name, value in found["weights"].items()}
    bias = weights["dense_3/bias"]
    before = np.ravel(found["scored"]["prediction"])
    new, old = found["new cell"]
    np.testing.assert_allclose(new, 2 * bias - before, rtol=0, atol=1e-5)
    assert old == before.tolist()
    assert found["fit of the new cell"]["own/gain"] != found["weights"]["own/gain"]


def test_a_class_defined_anew_does_not_go_on_from_the_checkpoints_of_the_one_before(found: dict[str, Any]) -> None:
    assert found["resumed"] == [[4, 0], None]


def test_a_failure_in_a_worker_gives_the_line_of_the_class(found: dict[str, Any]) -> None:
    (line,) = [at for at, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# here")]
    first = found["picky"].splitlines()[0]
    assert first.endswith(f": KeyError: 'w' ({__file__}, line {line})")


def test_a_class_that_workers_cannot_import_is_named(found: dict[str, Any]) -> None:
    assert found["error"] == (
        "A worker cannot load __main__.Gained, installed_parts.Refined "
        "(ModuleNotFoundError: No module named 'installed_parts'); "
        "install what is missing, and equal versions of it, on every machine."
    )


def test_a_saved_model_names_the_class_it_misses_and_loads_where_that_is_defined(
    spark: SparkSession, folder: Path, found: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This program is not the one that saved it, and has no such class in its `__main__` until it makes one."""
    monkeypatch.setattr(specs, "registry", specs.registry.copy())
    with pytest.raises(ValueError, match=r"'Gained' was defined in a script or notebook \(module '__main__'\); define"):
        DeepModel.load(str(folder / "model"))
    exec(SAME_CELL, globals() | {"__name__": "__main__"})
    model = DeepModel.load(str(folder / "model"))
    outputs = model.getNetwork().forward(model.weights, FEATURES.astype("float32"))
    np.testing.assert_allclose(outputs, found["scored"]["prediction"], rtol=0, atol=1e-6)


def test_what_is_sparkdl_s_is_not_sent() -> None:
    assert packed_classes(Network([Dense(2)], input_shape=(3,))) == b""
    install(b"")


def test_names_stay_those_of_the_program_for_nested_classes_too() -> None:
    @dataclass(frozen=True)
    class Local(Gained):
        pass

    name = f"{__name__}.{Local.__qualname__}"
    packed = packed_classes(Network([Local(), Gained()], input_shape=(3,)))
    assert json.loads(packed.partition(b"\n")[0]) == [name, f"{__name__}.Gained"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(specs, "registry", {})
        install(packed)
        assert specs.registry[name].type_name() == name
        patch.setattr(specs, "registry", {})
        with pytest.raises(
            ValueError, match="The class 'Local' is defined within the function '.*', which has not run"
        ):
            Spec.from_json({"type": name})


def test_a_class_that_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()

    @dataclass(frozen=True)
    class Locked(Layer):
        def forward(self, weights: Weights, x: Array) -> Array:
            with lock:
                return x

    expected = r"Locked cannot be sent to the workers: cannot pickle '_thread.lock' object; keep that out of the class"
    with pytest.raises(ValueError, match=expected):
        packed_classes(Network([Gained(), Locked()], input_shape=(3,)))
    assert packed_classes(Network([Gained()], input_shape=(3,)))  # without the others that there are


def test_a_class_that_is_no_longer_in_its_module_is_told_from_one_to_import() -> None:
    with pytest.raises(
        ValueError, match=f"The class 'Gone' is not defined in module '{__name__}' as it is imported here"
    ):
        Spec.from_json({"type": f"{__name__}.Gone"})


if __name__ == "__main__":
    train(Path(sys.argv[1]))
