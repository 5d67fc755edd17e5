"""Models of ONNX: what they read and put out, what they hold once, what is left out of them, refused, and written."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_peer import assert_equal, assert_same, random_weights, rows_of, session_of

from sparkdl import Graph, Network, Same, models
from sparkdl.interchange import onnx_files, save_onnx
from sparkdl.layers import (
    AttentionPool,
    BatchNorm,
    Bidirectional,
    Concatenate,
    Conv,
    Dense,
    Dropout,
    Embedding,
    EmbeddingBag,
    GaussianNoise,
    Gru,
    LastStep,
    Layer,
    LayerNorm,
    LearnedPositions,
    Lstm,
    Parallel,
    Ragged,
    RandomFlip,
    Relu,
    Residual,
    Segments,
    SinusoidalPositions,
    Standardize,
    Tanh,
    TiedDense,
    TimeMax,
    TimeMean,
    TransformerDecoder,
    TransformerEncoder,
    UpSample,
)
from sparkdl.layers.composite import Child, Composite

pytestmark = pytest.mark.usefixtures("unoptimized")

TEXT = Graph(
    {"words": (None,), "seen": (None,), "facts": (2,)},
    {
        "vectors": (Network([Embedding(9, 4, unknown=True), SinusoidalPositions()]), "words"),
        "parts": (Network([Segments(3), Embedding(2, 4)]), "words"),
        "read": (Network([Lstm(4), TransformerEncoder(1, 4, causal=True, rotary=9.0)]), "vectors"),
        "last": (Network([Bidirectional(Gru(2)), LastStep()]), "read"),
        "pooled": (AttentionPool(), "parts"),
        "bag": (EmbeddingBag(5, 3), "seen"),
        "all": (Concatenate(), "last", "pooled", "bag", "facts"),
        "kind": (Dense(3), "all"),
        "each": (Network([Conv(2, 3, padding="causal"), Dense(2)]), "read"),
    },
    ("kind", "each"),
)


def shapes_of(values: Any) -> dict[str, tuple[int, list[Any]]]:
    """By name the type of numbers, and the sizes."""
    return {
        value.name: (
            value.type.tensor_type.elem_type,
            [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim],
        )
        for value in values
    }


def operators(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_inputs_and_outputs_bear_the_networks_names_and_shapes() -> None:
    graph = TEXT.to_onnx(random_weights(TEXT)).graph
    floats, integers = 1, 7
    assert shapes_of(graph.input) == {
        "words": (integers, ["batch", "words_time"]),
        "seen": (integers, ["batch", "seen_time"]),
        "facts": (floats, ["batch", 2]),
        "words_lengths": (integers, ["batch"]),
        "seen_lengths": (integers, ["batch"]),
    }
    assert shapes_of(graph.output) == {
        "kind": (floats, ["batch", 3]),
        "each": (floats, ["batch", "words_time", 2]),
    }
    one = Network([Embedding(5, 2)], input_shape=(None,))
    graph = one.to_onnx(random_weights(one)).graph
    assert shapes_of(graph.input)["features"] == (integers, ["batch", "time"])
    assert shapes_of(graph.output) == {"label": (floats, ["batch", "time", 2])}


def test_one_model_takes_any_number_of_rows_and_steps_and_anything_as_padding() -> None:
    weights, lengths = random_weights(TEXT), np.array([7, 0, 2, 5, 1])
    rows = rows_of(TEXT, lengths, steps=9)
    kind, each = TEXT.forward(weights, rows.x)
    rows.fed["words"][np.arange(9)[None] >= lengths[:, None]] = -(2**31)
    rows.fed["seen"][np.arange(9)[None] >= lengths[:, None]] = 2**31 - 1
    session = session_of(TEXT.to_onnx(weights))
    for chosen, steps in (([0, 1, 2, 3, 4], 9), ([4], 1), ([2, 1], 3), ([1, 1, 1], 2)):
        fed = {name: array[chosen] for name, array in rows.fed.items()}
        fed |= {name: fed[name][:, :steps] for name in ("words", "seen")}
        found = session.run(["kind", "each"], fed)
        assert_same(found[0], kind[np.array(chosen)])
        assert_same(found[1], Ragged(each.values[np.array(chosen), :steps], each.lengths[np.array(chosen)]))


def test_nan_as_padding_changes_nothing() -> None:
    pools = Parallel([TimeMean(), TimeMax(), LastStep(), AttentionPool(), Network([Lstm(2), LastStep()])])
    graph = Graph({"x": (None, 4)}, {"y": (pools, "x"), "each": (TransformerEncoder(2, 3), "x")}, ("y", "each"))
    weights, rows = random_weights(graph), rows_of(graph)
    wanted = graph.forward(weights, rows.x)
    rows.fed["x"][~np.asarray(rows.x.valid)] = np.nan
    found = session_of(graph.to_onnx(weights)).run(["y", "each"], rows.fed)
    for one, other in zip(found, wanted, strict=True):
        assert_same(one, other)


def test_rows_of_one_input_may_be_longer_than_those_of_another() -> None:
    graph = Graph({"asking": (None, 4), "asked": (None, 4)}, {"y": (TransformerDecoder(2, 3), "asking", "asked")}, "y")
    weights, rows = random_weights(graph), rows_of(graph)
    draw = np.random.default_rng(0)
    asked = draw.normal(size=(3, 8, 4)).astype("float32")
    lengths = np.array([0, 8, 3])
    x = (rows.x[0], Ragged(asked, lengths.astype("int32")))
    found = session_of(graph.to_onnx(weights)).run(["y"], {**rows.fed, "asked": asked, "asked_lengths": lengths})
    assert_same(found[0], graph.forward(weights, x))


def test_steps_without_a_position_give_nan_and_padding_beyond_them_nothing() -> None:
    network = Network([LearnedPositions(3)], input_shape=(None, 2))
    session = session_of(network.to_onnx(random_weights(network)))
    x = np.ones((2, 5, 2), "float32")
    (y,) = session.run(None, {"features": x, "features_lengths": np.array([2, 4])})
    assert np.isfinite(y[0]).all() and np.isfinite(y[1, :3]).all() and np.isnan(y[1, 3]).all()


def test_what_is_no_category_is_an_error() -> None:
    network = Network([Embedding(5, 2)], input_shape=(3,))
    session = session_of(network.to_onnx(random_weights(network)))
    for bad in (-1, 5):
        with pytest.raises(Exception, match="out of data bounds"):
            session.run(None, {"features": np.array([[0, bad, 1]])})


IMAGES = Network(
    [Standardize(), Conv(3, (3, 3)), BatchNorm(), Relu(), UpSample(), Residual([Conv(3, (1, 1))]), LayerNorm()],
    input_shape=(6, 5, 2),
)
STEPS = Network([LayerNorm(), Standardize(), AttentionPool()], input_shape=(None, 3))


@pytest.mark.parametrize("opset", [13, 18, 21])
@pytest.mark.parametrize("network", [IMAGES, STEPS], ids=["images", "steps"])
def test_operators_are_those_of_the_opset(network: Network, opset: int) -> None:
    model = network.to_onnx(random_weights(network), opset)
    assert [(version.domain, version.version) for version in model.opset_import] == [("", opset)]
    assert ("LayerNormalization" in operators(model)) is (opset >= 17)
    assert_equal(network, opset)


def test_no_rows_are_rows_too() -> None:
    """But for recurrent layers, at which onnxruntime 1.32 dies of them."""
    for network in (IMAGES, models.bert(3, 20, 8, 1, 2, length=9, separator=2)):
        (y,) = session_of(network.to_onnx(random_weights(network))).run(None, rows_of(network, ()).fed)
        assert y.shape == (0, *network.output_shape())


def test_images_are_turned_once() -> None:
    for network in (models.lenet(), models.resnet((32, 32, 3), 5, (1, 1), 4)):
        assert operators(network.to_onnx(random_weights(network))).count("Transpose") == 1


def test_shared_weights_are_there_once() -> None:
    twins = Graph(
        {"left": (3,), "right": (3,)},
        {
            "a": (Network([Dense(4), BatchNorm(), Tanh()]), "left"),
            "b": (Same("a"), "right"),
            "both": (Concatenate(), "a", "b"),
        },
        "both",
    )
    tied = Network([Embedding(5, 3, name="words"), TiedDense(5, to="words")], input_shape=(4,))
    for network, count in ((twins, 6), (tied, 1)):
        names = [array.name for array in network.to_onnx(random_weights(network)).graph.initializer]
        assert len([name for name in names if not name.startswith("constants/")]) == count
    assert_equal(twins)


def test_what_is_random_in_training_is_left_out() -> None:
    network = Network([RandomFlip(), Dropout(0.5), GaussianNoise(1.0)], input_shape=(4, 4, 3))
    assert operators(network.to_onnx({})) == ["Identity"]


@dataclass(frozen=True)
class Halved(Layer):
    """A layer of a user's own."""

    def forward(self, weights: Any, x: Any) -> Any:
        return x / 2


@pytest.mark.parametrize(
    ("network", "place"),
    [
        (Network([Dense(2), Halved()], input_shape=(3,)), "halved_1"),
        (Network([Residual([Dense(3), Halved(name="own")])], input_shape=(3,)), "residual_0/body/own"),
    ],
)
def test_a_layer_that_cannot_be_written_is_named(network: Network, place: str) -> None:
    with pytest.raises(ValueError, match=f"'{place}' must be one of sparkdl.layers, .* received a Halved; make"):
        network.to_onnx(random_weights(network))


@dataclass(frozen=True)
class Twice(Composite):
    """A user's own layer, made of layers."""

    layer: Layer

    @property
    def children(self) -> tuple[Child, ...]:
        return Child("once", self.layer, (0,)), Child("again", self.layer, (1,), shared="once")


def test_a_layer_made_of_layers_is_written_whoever_made_it() -> None:
    network = Network([Twice(Dense(3))], input_shape=(3,))
    assert operators(network.to_onnx(random_weights(network))) == ["MatMul", "Add", "MatMul", "Add", "Identity"]


def test_what_is_not_the_networks_or_has_no_version_is_refused() -> None:
    network = Network([Dense(2)], input_shape=(3,))
    weights = random_weights(network)
    for opset in (12, 22, "17", True, None):
        with pytest.raises(ValueError, match="opset must be an integer from 13 to 21, received"):
            network.to_onnx(weights, opset)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'dense_0/bias': the network has"):
        network.to_onnx({"dense_0": {"kernel": weights["dense_0"]["kernel"]}})
    clashing = Graph(
        {"a": (None, 2), "a_lengths": (2,)},
        {"last": (LastStep(), "a"), "y": (Concatenate(), "last", "a_lengths")},
        "y",
    )
    with pytest.raises(ValueError, match="'a_lengths' is to be the input of the lengths"):
        clashing.to_onnx({})


def test_a_file_is_the_model_and_large_arrays_lie_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network([Dense(40), Relu(), Dense(2)], input_shape=(30,))
    weights, rows = random_weights(network), rows_of(network)
    wanted = network.forward(weights, rows.x)
    sizes = []
    for largest in (onnx_files.LARGEST, 1000, 1000, onnx_files.LARGEST):
        monkeypatch.setattr(onnx_files, "LARGEST", largest)
        save_onnx(tmp_path / "a.onnx", network, weights)
        found = onnxruntime.InferenceSession(tmp_path / "a.onnx").run(["label"], rows.fed)
        assert_same(found[0], wanted)
        assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1
        sizes.append([(path.name, path.stat().st_size) for path in sorted(tmp_path.iterdir())])
    assert [name for name, _ in sizes[1]] == ["a.onnx", "a.onnx.data"] and sizes[1] == sizes[2]
    assert sizes[1][0][1] < sizes[0][0][1] - 4000 < sizes[1][1][1]
    assert sizes[0] == sizes[3]


def test_a_file_of_others_that_is_called_like_the_arrays_stays(tmp_path: Path) -> None:
    network = Network([Dense(2)], input_shape=(3,))
    (tmp_path / "a.onnx.data").write_bytes(b"mine")
    for before in (None, None, b"no ONNX"):  # nothing, a file of ours that has its arrays within, and any other
        if before is not None:
            (tmp_path / "a.onnx").write_bytes(before)
        save_onnx(tmp_path / "a.onnx", network, random_weights(network))
        assert (tmp_path / "a.onnx.data").read_bytes() == b"mine"


def test_files_that_cannot_be_written_leave_those_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network([Dense(40)], input_shape=(30,))
    monkeypatch.setattr(onnx_files, "LARGEST", 1000)
    save_onnx(tmp_path / "a.onnx", network, random_weights(network))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(model: Any, path: Any, **options: Any) -> None:
        Path(path).write_bytes(b"a part")
        raise OSError("the disk is full")

    monkeypatch.setattr(onnx, "save_model", full)
    for largest in (1000, 1 << 30):
        monkeypatch.setattr(onnx_files, "LARGEST", largest)
        with pytest.raises(OSError, match="the disk is full"):
            save_onnx(tmp_path / "a.onnx", network, random_weights(network))
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_who_does_not_need_onnx_does_not_load_it() -> None:
    code = "import sys, sparkdl.interchange, sparkdl.models; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_the_package_onnx_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    network = Network([Dense(2)], input_shape=(3,))
    with pytest.raises(ImportError, match=r"pip install 'sparkdl-jax\[onnx\]'"):
        network.to_onnx(random_weights(network))
