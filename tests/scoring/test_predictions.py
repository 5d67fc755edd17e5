"""Rows in every form that programs have them give the same predictions, by one Predictor and from many threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sparkdl
from sparkdl import Graph, Network, Predictor
from sparkdl.layers import (
    Conv,
    Dense,
    EachStep,
    Embedding,
    Flatten,
    HashedEmbedding,
    Rescale,
    Reshape,
    Residual,
    Tanh,
    TimeMean,
)
from sparkdl.objective import Objective
from sparkdl.scoring import forward
from sparkdl.scoring.saved_model import SavedModel, read_model
from sparkdl.specs import Named

pytestmark = pytest.mark.usefixtures("unoptimized")
SAVED = Path(__file__).parents[1] / "saved_by_0.1" / "model"  # Rescale, Dense(5), Tanh, Dense(2)
FEATURES = np.random.default_rng(3).integers(0, 256, (11, 4)).astype(np.float64)
COLUMNS, ADDED = ["rawPredictionCol", "probabilityCol", "predictionCol"], ["rawPrediction", "probability", "prediction"]


def saved(**params: Any) -> SavedModel:
    """The saved model with other Params."""
    model = read_model(SAVED)
    return replace(model, params=model.params | dict(zip(COLUMNS, ADDED, strict=True)) | params)


def model_of(network: Any, **params: Any) -> SavedModel:
    """A model without a loss, of random weights."""
    chance = np.random.default_rng(5)
    weights = jax.tree.map(lambda a: chance.normal(size=a.shape).astype(np.float32), network.abstract_weights())
    own = saved().params | {"loss": None, "batchSize": 8} | params
    return SavedModel("DeepModel_1", "DeepModel", own, network, Objective(Named({}), Named({})), weights, {})


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor(saved())


def softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def test_they_are_those_of_numpy(predictor: Predictor) -> None:
    weights = read_model(SAVED).weights
    hidden = np.tanh(FEATURES / 255 @ weights["dense_1"]["kernel"].astype(float) + weights["dense_1"]["bias"])
    scores = hidden @ weights["dense_3"]["kernel"].astype(float) + weights["dense_3"]["bias"]
    found = predictor.predict({"features": FEATURES})
    np.testing.assert_allclose(found["probability"], softmax(scores), rtol=1e-5)
    np.testing.assert_array_equal(found["prediction"], scores.argmax(axis=1))
    assert predictor.columns == tuple(ADDED)
    assert predictor.inputs == ("features",)
    assert predictor.schema.types == [pa.list_(pa.float32()), pa.list_(pa.float32()), pa.float64()]


FORMS: dict[str, Any] = {
    "big-endian": {"features": FEATURES.astype(">f4")},
    "big-endian integers": {"features": FEATURES.astype(">u2")},
    "long doubles": {"features": FEATURES.astype(np.longdouble)},
    "big-endian rows": {"features": list(FEATURES.astype(">f8"))},
    "long double rows": {"features": [row.reshape(4) for row in FEATURES.astype(np.longdouble)]},
    "tuple": {"features": tuple(FEATURES)},
    "values of a dict": {"features": dict(enumerate(FEATURES.tolist())).values()},
    "Series": {"features": pd.Series(list(FEATURES), index=range(5, 16))},
    "Arrow": {"features": pa.array(FEATURES.tolist())},
    "float32": {"features": FEATURES.astype(np.float32)},
    "integers": {"features": FEATURES.astype(np.int16)},
    "halves": {"features": FEATURES.astype(np.float16)},
    "not contiguous": {"features": np.asfortranarray(FEATURES)},
    "lists": {"features": FEATURES.tolist()},
    "objects": {"features": np.array([*map(tuple, FEATURES), None], object)[:-1]},
    "frame": pd.DataFrame({"features": list(FEATURES), "id": range(11)}, index=range(5, 16)),
    "table": pa.table({"features": FEATURES.tolist(), "id": range(11)}),
    "chunks": pa.concat_tables([pa.table({"features": FEATURES[at : at + 5].tolist()}) for at in (0, 5, 10)]),
    "batch": pa.RecordBatch.from_pydict({"features": FEATURES.tolist()}),
    "large": pa.table({"features": pa.array(FEATURES.tolist(), pa.large_list(pa.float64()))}),
    "fixed": pa.table({"features": pa.array(FEATURES.tolist(), pa.list_(pa.float32(), 4))}),
}


@pytest.mark.parametrize("name", FORMS)
def test_rows_of_every_form_give_the_same_and_stay_as_they_are(name: str, predictor: Predictor) -> None:
    rows, expected = FORMS[name], predictor.predict({"features": FEATURES})
    found = predictor.predict(rows)
    assert type(found) is type(rows)
    for column in ADDED:
        values = found[column].to_pylist() if isinstance(rows, (pa.Table, pa.RecordBatch)) else list(found[column])
        np.testing.assert_array_equal(np.array(values), expected[column])
    names = list(rows) if isinstance(rows, dict) else list(getattr(rows, "column_names", getattr(rows, "columns", [])))
    assert found["features"] is rows["features"] if isinstance(rows, dict) else found[names[0]].equals(rows[names[0]])
    if isinstance(rows, pd.DataFrame):
        assert found.index.equals(rows.index)


BROKEN = [[1.0, 2, 3, 4], None, [5, 6, float("nan"), 8], [1, 2], [9, 10, 11, 12]]


def test_rows_that_cannot_be_used_go_where_handle_invalid_says(predictor: Predictor) -> None:
    good = predictor.predict({"features": [BROKEN[0], BROKEN[4]]})
    rows = {"features": BROKEN, "id": np.arange(5)}
    with pytest.raises(ValueError, match="featuresCol 'features' .*; mend or drop such rows, or set handleInvalid"):
        predictor.predict(rows)
    skipped = Predictor(saved(handleInvalid="skip")).predict(rows)
    assert skipped["id"].tolist() == [0, 4]
    assert skipped["features"] == [BROKEN[0], BROKEN[4]]
    np.testing.assert_array_equal(skipped["probability"], good["probability"])
    keeping = Predictor(saved(handleInvalid="keep"))
    kept = keeping.predict(rows)
    np.testing.assert_array_equal(kept["probability"][[0, 4]], good["probability"])
    assert np.isnan(kept["probability"][1:4]).all()
    assert np.isnan(kept["prediction"][1:4]).all()
    nulls = keeping.predict(pa.table({"features": BROKEN}))
    assert nulls["rawPrediction"].is_null().to_pylist() == [False, True, True, True, False]


@pytest.mark.parametrize("dtype", ["float32", "int64", ">f8", "longdouble"])
def test_what_is_masked_in_arrays_is_missing(dtype: str) -> None:
    masked = np.ma.masked_array(FEATURES.astype(dtype), np.zeros(FEATURES.shape, bool))
    masked[2, 1] = masked[5] = np.ma.masked
    rows: list[Any] = FEATURES.tolist()
    rows[2][1] = rows[5] = None
    expected = Predictor(saved(handleInvalid="keep")).predict({"features": rows})["probability"]
    assert np.isnan(expected).all(axis=1).nonzero()[0].tolist() == [2, 5]
    columns = {name: masked[:, at] for at, name in enumerate("abcd")}
    for names, given in (([], {"features": masked}), ([], {"features": list(masked)}), ([*"abcd"], columns)):
        keeping = Predictor(saved(featuresCols=names, handleInvalid="keep"))
        np.testing.assert_array_equal(keeping.predict(given)["probability"], expected)


def test_a_frame_may_hold_numbers_sparsely_and_none_that_arrow_lacks() -> None:
    predictor = Predictor(saved(featuresCols=["a", "b", "c", "d"]))
    frame = pd.DataFrame(FEATURES, columns=[*"abcd"])
    expected = predictor.predict(frame)["probability"].to_list()
    sparse = predictor.predict(frame.astype(pd.SparseDtype(float)))["probability"].to_list()
    np.testing.assert_array_equal(sparse, expected)
    with pytest.raises(ValueError, match="column 'b' must hold values of one type, as numbers, .*; convert them"):
        predictor.predict(frame.assign(b=1j))
    with pytest.raises(ValueError, match="column 'b' must hold values of one type, .*with type Period"):
        predictor.predict(frame.assign(b=pd.period_range("2024-01", periods=len(frame), freq="M")))


VIEWS = {
    "strings": pa.array(["a", None, "c", "d", "e"]).cast(pa.string_view()),
    "bytes": pa.array([b"a", None, b"c", b"d", b"e"]).cast(pa.binary_view()),
    "lists": pa.array([["a"], None, [], ["d"], ["e"]], pa.list_(pa.string_view())),
    "runs": pa.RunEndEncodedArray.from_arrays([1, 3, 5], ["a", None, "e"]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_rows_are_left_out_beside_columns_that_arrow_cannot_filter(name: str) -> None:
    skipping, other = Predictor(saved(handleInvalid="skip")), VIEWS[name]
    table = pa.table({"features": BROKEN, "other": other})
    (batch,) = table.to_batches()
    for rows in (table, batch):
        found = skipping.predict(rows)
        assert type(found) is type(rows)
        assert found.schema.field("other").type == other.type
        assert found["other"].to_pylist() == [other.to_pylist()[at] for at in (0, 4)]
        none = skipping.predict(rows.slice(1, 3))
        assert (none.num_rows, none.schema) == (0, found.schema)


def test_no_rows_give_none(predictor: Predictor) -> None:
    table = pa.table({"features": pa.array([], pa.list_(pa.float64()))})
    assert predictor.predict(table).schema.field("probability").type == pa.list_(pa.float32())
    assert predictor.predict({"features": []})["prediction"].shape == (0,)
    assert predictor.predict(table.to_pandas()).empty


PICTURE = Network([Reshape((2, 2, 1)), Conv(3, (2, 2)), Flatten(), Dense(1)], input_shape=(4,))
BLOCK = Network([Dense(5), Residual([Dense(5), Tanh()]), Dense(1)], input_shape=(4,))
FILM = Network([Reshape((2, 2)), EachStep([Dense(5)]), Flatten(), Dense(1)], input_shape=(4,))
ENDS = Graph(inputs={"x": (4,)}, nodes={"a": (Dense(2), "x"), "b": (Dense(7), "x")}, outputs=("a", "b"))
WIDTHS = {
    "scores": (saved(), "rawPrediction", 2),
    "chances": (saved(), "probability", 2),
    "numbers": (model_of(Network([Dense(7)], input_shape=(4,))), "prediction", 7),
    "positions": (model_of(Network([Dense(6), Reshape((2, 3))], input_shape=(4,))), "prediction", 6),
    "one of several": (model_of(ENDS), "prediction_b", 7),
    "a layer": (replace(saved(), activations={"dense_1": "found"}), "found", 5),
    "a picture": (replace(model_of(PICTURE), activations={"conv_1": "found"}), "found", 3),
    "in each step": (replace(model_of(FILM), activations={"each_step_1/dense_0": "found"}), "found", 10),
    "in a block": (replace(model_of(BLOCK), activations={"residual_1/body/dense_0": "found"}), "found", 5),
}


@pytest.mark.parametrize("name", WIDTHS)
def test_arrays_are_as_wide_where_no_row_was_scored(name: str) -> None:
    model, column, width = WIDTHS[name]
    keeping, skipping = (
        Predictor(replace(model, params=model.params | {"handleInvalid": how})) for how in ("keep", "skip")
    )
    assert keeping.predict({"features": [[1.0] * 4]})[column].shape == (1, width)
    found = keeping.predict({"features": [None, [1.0]]})[column]
    assert (found.shape, np.isnan(found).all()) == ((2, width), True)
    assert np.isnan(keeping.predict(pd.DataFrame({"features": [None]}))[column][0]).tolist() == [True] * width
    for none in (keeping.predict({"features": np.zeros((0, 4))}), skipping.predict({"features": [None]})):
        assert none[column].shape == (0, width)


def test_arrays_of_no_steps_are_as_wide_as_others() -> None:
    network = Network([Embedding(9, 3), Dense(2)], input_shape=(None,))
    steps = Predictor(replace(model_of(network, handleInvalid="keep"), activations={"embedding_0": "found"}))
    found = steps.predict({"features": [[], None]})
    assert [found[name][0].shape for name in ("prediction", "found")] == [(0, 2), (0, 3)]
    assert [found[name][1] for name in ("prediction", "found")] == [None, None]


def test_steps_and_strings_come_as_arrays_of_their_own_length() -> None:
    steps = Predictor(model_of(Network([Embedding(9, 3), Dense(2)], input_shape=(None,))))
    found = steps.predict({"features": [[1, 2, 3], [], [4]]})["prediction"]
    assert [row.shape for row in found] == [(3, 2), (0, 2), (1, 2)]
    words = Predictor(model_of(Network([HashedEmbedding(900, 3), Dense(1)], input_shape=())))
    strings = np.array(["a", "b", "a"])
    alike = [words.predict({"features": form})["prediction"] for form in (strings, strings.tolist())]
    alike.append(words.predict(pd.DataFrame({"features": pd.Categorical(strings)}))["prediction"].to_numpy())
    for array in alike:
        np.testing.assert_array_equal(array, alike[0])
    assert alike[0][0] == alike[0][2] != alike[0][1]


TEXTS = {
    "integers": Embedding(9, 3),
    "hashes": HashedEmbedding(9, 3),
    "words": Embedding(2, 3, vocabulary=["a", "b"]),
    "split": HashedEmbedding(9, 3, split="word"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_whether_a_row_is_scored_does_not_hang_on_the_others(name: str) -> None:
    network = Network([TEXTS[name], TimeMean(), Dense(2)], input_shape=(None,))
    keeping = Predictor(model_of(network, handleInvalid="keep"))
    rows: list[Any] = [[1] if name == "integers" else ["a"], [], [None], None]
    expected = keeping.predict({"features": rows})["prediction"]
    assert np.isnan(expected).all(axis=1).tolist() == [False, False, True, True]
    for at, row in enumerate(rows):
        for alone in ({"features": [row]}, pd.DataFrame({"features": [row]})):
            np.testing.assert_array_equal(keeping.predict(alone)["prediction"][0], expected[at])
        in_arrow = keeping.predict(pa.table({"features": [row]}))["prediction"].to_pylist()
        assert in_arrow == ([expected[at].tolist()] if at < 2 else [None])
    strict = Predictor(model_of(network))
    np.testing.assert_array_equal(strict.predict({"features": [[]]})["prediction"][0], expected[1])
    with pytest.raises(ValueError, match="featuresCol 'features' holds null"):
        strict.predict({"features": [[None]]})


def test_a_string_that_no_vocabulary_has_is_named_whatever_holds_it() -> None:
    words = Predictor(model_of(Network([TEXTS["words"], TimeMean(), Dense(2)], input_shape=(None,))))
    for kind in (pa.list_(pa.string()), pa.large_list(pa.large_string()), pa.list_(pa.string(), 2)):
        rows = pa.table({"features": pa.array([["a", "b"], ["b", "c"]], kind)})
        with pytest.raises(ValueError, match="the vocabulary of the network's layer 'embedding_0' has, received 'c'"):
            words.predict(rows)


def test_a_string_that_is_missing_is_so_alone_too() -> None:
    words = Predictor(model_of(Network([HashedEmbedding(9, 3), Dense(1)], input_shape=()), handleInvalid="keep"))
    for rows in ({"features": [None]}, pd.DataFrame({"features": pd.Categorical([None])})):
        assert np.isnan(words.predict(rows)["prediction"][0])


def test_pixels_come_as_arrays_and_as_bytes() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 2, 2, 3), np.uint8)
    network = Network([Flatten(), Rescale(1 / 255), Dense(1)], input_shape=(2, 2, 3))
    predictor = Predictor(model_of(network))
    as_arrays = predictor.predict({"features": pixels})["prediction"]
    as_bytes = predictor.predict({"features": [image.tobytes() for image in pixels]})["prediction"]
    image = {"height": 2, "width": 2, "nChannels": 3, "mode": 16, "origin": ""}
    structs = [image | {"data": row[..., ::-1].tobytes()} for row in pixels]  # BGR, as Spark has them
    np.testing.assert_array_equal(as_bytes, as_arrays)
    np.testing.assert_array_equal(predictor.predict({"features": structs})["prediction"], as_arrays)


def test_tensors_of_arrow_are_read_unless_their_axes_are_permuted() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 2, 2), np.uint8).transpose(0, 2, 3, 1)
    predictor = Predictor(model_of(Network([Flatten(), Rescale(1 / 255), Dense(1)], input_shape=(2, 2, 3))))
    permuted, plain = map(pa.FixedShapeTensorArray.from_numpy_ndarray, (pixels, np.ascontiguousarray(pixels)))
    found = predictor.predict(pa.table({"features": plain}))["prediction"].to_pylist()
    assert found == predictor.predict({"features": pixels})["prediction"].tolist()
    with pytest.raises(ValueError, match="column 'features' must hold tensors .* permuted by .*; make them of np.asc"):
        predictor.predict(pa.table({"features": permuted}))


def test_threads_share_it() -> None:
    predictor = Predictor(saved())
    parts = [FEATURES[at : at + size] for at, size in [(0, 11), (1, 3), (4, 1), (2, 9)] * 8]
    expected = [Predictor(saved()).predict({"features": part})["probability"] for part in parts[:4]] * 8
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda part: predictor.predict({"features": part})["probability"], parts))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_warm_compiles_no_more() -> None:
    predictor = Predictor(model_of(Network([Dense(3)], input_shape=(4,))))
    predictor.warm({"features": FEATURES[:1]})
    (program,) = [run for key, run in forward._programs.items() if '"units": 3' in key[0]]
    assert program._cache_size() == 1  # type: ignore[attr-defined]
    predictor.predict({"features": FEATURES})
    predictor.predict(pa.table({"features": FEATURES[:7].tolist()}))
    assert program._cache_size() == 1  # type: ignore[attr-defined]


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "no rows": ([1, 2], TypeError, "rows must be a dict of arrays or lists, a pandas DataFrame, .* a builtins.list"),
    "no column": ({"x": [1]}, ValueError, "featuresCol names column 'features', which is not there; .* are x."),
    "there": ({"features": [[1.0] * 4], "prediction": [0]}, ValueError, "Output column 'prediction' exists already"),
    "mixed": ({"features": [[1.0], "a"]}, ValueError, "column 'features' must hold values of one type"),
    "times": ({"features": [datetime(2020, 1, 1)]}, ValueError, "featuresCol 'features'"),
    "nothing": (
        {"features": np.zeros((3, 4, 0))},
        ValueError,
        "featuresCol 'features' must hold arrays nested at most 1",
    ),
    "wide": ({"features": [[1.0] * 5]}, ValueError, "featuresCol 'features' must hold 4 values a row"),
}


NO_COLUMNS = {
    "mapping": {0: [1.0] * 4},
    "str": "90210",
    "bytes": b"90210",
    "set": {1.0, 2.0},
    "number": 5,
    "None": None,
    "array of no axes": np.array(5.0),
    "iterator": iter([[1.0] * 4]),
    "frame": pd.DataFrame({"a": [1.0], "b": [2.0]}),
    "table": pa.table({"a": [1.0], "b": [2.0]}),
}


@pytest.mark.parametrize("name", NO_COLUMNS)
def test_a_column_that_is_no_list_of_rows_is_refused_whatever_it_holds(name: str, predictor: Predictor) -> None:
    column, kind = NO_COLUMNS[name], type(NO_COLUMNS[name]).__name__
    for rows in ({"features": column}, {"features": [[1.0] * 4], "id": column}):
        with pytest.raises(ValueError, match=f"column '.*' must be a list .*, one for each row, received .*{kind}"):
            predictor.predict(rows)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_scored_is_said_in_a_sentence(name: str, predictor: Predictor) -> None:
    rows, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        predictor.predict(rows)


@pytest.mark.parametrize("invalid", ["error", "skip", "keep"])
def test_columns_of_different_lengths_are_refused(invalid: str) -> None:
    predictor = Predictor(saved(featuresCols=["a", "b"], handleInvalid=invalid))
    pair: Any = [1.0, None if invalid == "skip" else 2.0]
    with pytest.raises(ValueError, match="as many values in every column, received 1 of 'a', 2 of 'b'"):
        predictor.predict({"a": [pair], "b": [pair] * 2})
    for short in (np.arange(1), [7]):
        with pytest.raises(ValueError, match="received 2 of 'a', 2 of 'b', 1 of 'id'"):
            predictor.predict({"a": [pair] * 2, "b": [pair] * 2, "id": short})


def test_a_column_that_is_read_and_there_twice_is_refused() -> None:
    predictor = Predictor(saved(featuresCols=["a", "b"]))
    pair = pa.array([[1.0, 2.0]])
    table = pa.table([pair, pair, pair], ["a", "b", "b"])
    frame = pd.DataFrame([[[1.0, 2.0]] * 3], columns=["a", "b", "b"])
    for rows in (table, table.to_batches()[0], frame):
        with pytest.raises(ValueError, match="featuresCols names column 'b', which is there 2 times; rename or drop"):
            predictor.predict(rows)
    others = pa.table([pair, pair, pair, pair], ["a", "b", "id", "id"])
    assert predictor.predict(others).schema.names == ["a", "b", "id", "id", *ADDED]


def test_a_frame_of_numbers_may_hold_them_in_any_byte_order() -> None:
    predictor = Predictor(saved(featuresCols=["a", "b", "c", "d"]))
    expected = predictor.predict({name: FEATURES[:, at] for at, name in enumerate("abcd")})["probability"]
    for dtype in (">f8", ">i4", np.longdouble):
        frame = pd.DataFrame({name: FEATURES[:, at].astype(dtype) for at, name in enumerate("abcd")})
        np.testing.assert_array_equal(np.stack(predictor.predict(frame)["probability"].to_list()), expected)


def test_what_is_asked_for_at_load_takes_the_place_of_params(predictor: Predictor) -> None:
    found = Predictor(saved(), device="cpu", batch_size=1).predict({"features": FEATURES})["prediction"]
    np.testing.assert_array_equal(found, predictor.predict({"features": FEATURES})["prediction"])
    with pytest.raises(ValueError, match="device must be auto, cpu or gpu, received 'tpu'"):
        sparkdl.load(SAVED, device="tpu")
    for size in (0, 1.5, True, "8"):
        with pytest.raises(ValueError, match=f"batchSize must be an integer of at least 1, received {size!r}"):
            sparkdl.load(SAVED, batch_size=size)  # type: ignore[arg-type]
    if not any(device.platform == "gpu" for device in jax.devices()):
        with pytest.raises(
            ValueError, match="deviceType is 'gpu', but JAX finds no such device here; load with device='cpu'"
        ):
            Predictor(saved(deviceType="gpu"))


def test_columns_that_are_asked_for_twice_are_refused() -> None:
    twice = replace(saved(), activations={"tanh_2": "a", "dense_1": "a"})
    for model in (replace(saved(), activations={"tanh_2": "prediction"}), saved(probabilityCol="prediction"), twice):
        with pytest.raises(ValueError, match="Output column '(prediction|a)' is asked for twice"):
            Predictor(model)
