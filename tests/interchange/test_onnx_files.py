"""ONNX files that are damaged, reach beyond their folder, or have what no layer is known for, are refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from onnx_graphs import channels_last, computed, onnx, rows, written

from sparkdl import training
from sparkdl.interchange import load_onnx

pytestmark = pytest.mark.usefixtures("unoptimized")

CNN = "c = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(c) f = Flatten(r) y = Gemm(f, v)"
ARRAYS: dict[str, Any] = {"w": (3, 2, 3, 3), "b": (3,), "v": (48, 2)}


def cnn(folder: Path) -> Path:
    return written(folder / "a.onnx", "float[N, 2, 4, 4] x", CNN, ARRAYS)


def changed(path: Path, change: Any) -> Path:
    model = onnx.load(path, load_external_data=False)
    change(model)
    onnx.save(model, path)
    return path


# What is refused

VECTOR, IMAGE = "float[N, 4] x", "float[N, 2, 4, 4] x"
MANY = "its constants come to arrays of {} numbers, more than the 134217728 that are made"
GRAPHS: dict[str, Any] = {
    "an operator that is unknown": (
        VECTOR, "a = Relu(x) y = Einsum<equation=\"ij->ji\">(a)", {},
        r"its node 'y' \(Einsum\) is of no operator that layers are known for; known are .*Conv, .*LSTM",
    ),
    "a graph within": (
        VECTOR, "y = If<then_branch = g () => (float[] a) {a = Constant<value_float=1.0>()}, "
        "else_branch = g () => (float[] a) {a = Constant<value_float=1.0>()}>(x)", {}, r"'y' \(If\) is of no operator",
    ),
    "a computed divisor": (VECTOR, "a = Relu(x) y = Div(x, a)", {}, "divides by what is computed"),
    "integers of what is computed": (VECTOR, "a = Relu(x) y = Cast<to=7>(a)", {}, "makes integers of what is computed"),
    "a divisor of 0": (VECTOR, "y = Div(x, z)", {"z": np.float32(0)}, r"'y' \(Div\) is no layer of ours"),
    "a computed kernel": (IMAGE, "y = Conv(x, x)", {}, "has a computed kernel"),
    "a product that is not attention's": (
        "float[N, 3, 3] x", "y = MatMul(x, x)", {}, "gives the product of two computed arrays, which is no layer"
    ),
    "a mean of rows": (VECTOR, "y = ReduceMean<axes=[0]>(x)", {}, "makes one number of several rows"),
    "other bounds": (VECTOR, "y = Clip(x, l)", {"l": np.float32(2)}, "bounds numbers by 2.0 and inf, where 0 alone is"),
    "a maximum with one more than a rectified tanh's": (
        VECTOR, "t = Tanh(x) y = Max(t, z, x)", {"z": np.float32(0)}, r"'y' \(Max\) merges a constant with what is"
    ),
    "bounds in another order": (
        VECTOR, "y = Clip(x, l, h)", {"l": np.float32(2), "h": np.float32(1)}, "bounds numbers by 2.0 and 1.0, where"
    ),
    "a softplus that ends early": (
        VECTOR, "s = Softplus(x) g = Greater(x, t) y = Where(g, x, s)", {"t": np.float32(5)},
        r"'y' \(Where\) ends a Softplus at 5.0, where 15 or more was expected"
    ),
    "rows that are chosen": (VECTOR, "y = Gather<axis=0>(x, i)", {"i": np.int64(0)}, "chooses a row"),
    "a shape that does not fit": (VECTOR, "y = MatMul(x, w)", {"w": (5, 2)}, r"'y' \(MatMul\) has arrays of sizes"),
    "sizes that do not fit": (VECTOR, "y = Reshape(x, s)", {"s": np.array([-1, 3])}, r"'y' \(Reshape\) has arrays of"),
    "an image of any size": (
        "float[N, 2, H, W] x", "y = Relu(x)", {},
        r"input 'x' has the sizes \('N', 2, 'H', 'W'\).*export it with the others"
    ),
    "axes that are mixed": (IMAGE, "y = Transpose<perm=[0, 1]>(x)", {}, r"'y' \(Transpose\) has arrays of sizes"),
    "groups of a transposed convolution": (
        IMAGE, "y = ConvTranspose<group=2>(x, w)", {"w": (2, 1, 3, 3)}, "has groups"
    ),
    "an attribute that is missing": (IMAGE, "y = LRN<alpha=0.1>(x)", {}, "inputs or attributes than the standard"),
    "constants that are larger than any": (
        VECTOR, "a = Range(z, n, o) y = Add(x, a)",
        {"z": np.int64(0), "n": np.int64(1 << 60), "o": np.int64(1)},
        "its constants come to arrays of 1152921504606846976",
    ),
    "a kernel that repeats one number": (
        VECTOR, "w = ConstantOfShape(s) y = MatMul(x, w)", {"s": np.array([4, 1 << 33])}, MANY.format(1 << 35),
    ),
    "a kernel that is expanded": (
        VECTOR, "w = Expand(v, s) y = Gemm(x, w)", {"v": (4, 1), "s": np.array([4, 1 << 33])}, MANY.format(1 << 35),
    ),
    "gates that repeat one number": (
        "float[5, N, 4] x", "w = ConstantOfShape(s) y, h = RNN<hidden_size=1073741824>(x, w, w)",
        {"s": np.array([1, 1 << 30, 4])}, MANY.format(1 << 32),
    ),
    "a scale that repeats one number": (
        IMAGE, "w = ConstantOfShape<value = float[1] {0.5}>(s) y = InstanceNormalization(x, w, b)",
        {"s": np.array([1 << 33]), "b": (2,)}, MANY.format(1 << 33),
    ),
    "categories that repeat one number": (
        "int64[N, 4] x", "w = ConstantOfShape<value = int64[1] {0}>(s) u = Unsqueeze(x, o) "
        "e = Equal(u, w) y = Cast<to=1>(e)", {"s": np.array([1 << 33]), "o": np.array([2])}, MANY.format(1 << 33),
    ),
    "more sizes than arrays have": (
        VECTOR, "s = ConstantOfShape<value = int64[1] {1}>(n) y = Reshape(x, s)", {"n": np.array([1 << 33])},
        "it names 8589934592 sizes, axes or places at once, more than the 65536 that are read",
    ),
    "an array beyond all memory": (
        VECTOR, "w = ConstantOfShape(s) y = MatMul(x, w)", {"s": np.array([4, 1 << 62])},
        r"it makes an array of the shape \(4, 4611686018427387904\)",
    ),
    "an output of constants alone": (VECTOR, "y = Identity(w)", {"w": (4,)}, "output 'y' does not depend on"),
    "an old version of the operators": (VECTOR, "y = Relu(x)", {}, "opset 7; export it anew"),
    "a cell's state": (
        "float[5, N, 4] x", "o, h, y = LSTM<hidden_size=3>(x, w, r)", {"w": (1, 12, 4), "r": (1, 12, 3)},
        "output 'y' does not depend on what it reads, or is not computed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_what_no_layer_is_known_for_is_told_by_its_node(name: str, tmp_path: Path) -> None:
    inputs, body, constants, message = GRAPHS[name]
    path = written(tmp_path / "a.onnx", inputs, body, constants, opset=7 if "old" in name else 17)
    with pytest.raises(ValueError, match=message) as raised:
        load_onnx(path)
    assert str(raised.value).startswith(f"{str(path)!r} cannot be imported: ")


def test_constants_that_are_never_made_whole_may_be_of_any_size(tmp_path: Path) -> None:
    """A mask for the longest text, of which the file's own takes a part; and zeros for every row."""
    body = (
        "m = ConstantOfShape(most) part = Slice(m, zeros, few) a = Add(x, part) "
        "h = ConstantOfShape(state) y, last = RNN<hidden_size=3>(a, w, r, , , h)"
    )
    constants = {
        "most": np.array([1 << 20, 1 << 20, 4]), "zeros": np.array([0, 0]), "few": np.array([1, 1]),
        "state": np.array([1, 1 << 30, 3]), "w": (1, 3, 4), "r": (1, 3, 3),
    }  # fmt: skip
    network, _ = load_onnx(written(tmp_path / "a.onnx", "float[5, N, 4] x", body, constants))
    assert network.output_shapes


def test_operators_of_others_and_what_is_no_file_of_it(tmp_path: Path) -> None:
    def foreign(model: Any) -> None:
        model.graph.node[1].domain = "com.others"

    with pytest.raises(ValueError, match="'r' is a Relu of 'com.others', not of the standard"):
        load_onnx(changed(cnn(tmp_path), foreign))
    (tmp_path / "b.onnx").write_bytes(b"PK\x03\x04 no protobuf at all")
    with pytest.raises(ValueError, match="it is no ONNX file"):
        load_onnx(tmp_path / "b.onnx")
    with pytest.raises(FileNotFoundError):
        load_onnx(tmp_path / "none.onnx")


# Damage

SEED = 7


def test_a_damaged_file_is_refused_or_still_a_network(tmp_path: Path) -> None:
    whole = cnn(tmp_path).read_bytes()
    draw = np.random.default_rng(SEED)
    told = len(whole) - 4 * (48 * 2 + 3 * 2 * 9)  # bytes that are no weights, roughly
    damaged = [whole[: draw.integers(len(whole))] for _ in range(20)]
    for _ in range(150):
        flipped = bytearray(whole)
        flipped[draw.integers(told)] ^= 1 << int(draw.integers(8))
        damaged.append(bytes(flipped))
    refused = 0
    for content in damaged:
        (tmp_path / "b.onnx").write_bytes(content)
        try:
            load_onnx(tmp_path / "b.onnx")
        except ValueError:
            refused += 1
    assert refused > 40


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensor: tensor.dims.__setitem__(0, 1 << 40), r"'w' of shape \(1099511627776, 2, 3, 3\) has 216 bytes"),
        (lambda tensor: tensor.dims.__setitem__(0, -3), r"'w' has the shape \(-3, 2, 3, 3\)"),
        (lambda tensor: setattr(tensor, "data_type", 8), "'w' is of object"),
        (lambda tensor: setattr(tensor, "data_type", 99), "'w' is of no type that is known"),
    ],
)
def test_sizes_of_arrays_are_checked_before_anything_is_made(change: Any, message: str, tmp_path: Path) -> None:
    path = changed(cnn(tmp_path), lambda model: change(model.graph.initializer[0]))
    with pytest.raises(ValueError, match=message):
        load_onnx(path)


# Arrays beside the file


def beside(folder: Path) -> Path:
    path = cnn(folder)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="a.data", size_threshold=0)
    return path


def test_arrays_beside_the_file_are_read(tmp_path: Path) -> None:
    path, x = beside(tmp_path), rows((2, 2, 4, 4))
    network, weights = load_onnx(path)
    y = network.forward(weights, jnp.asarray(channels_last(x)))
    np.testing.assert_allclose(y, computed(path, x)[0], rtol=1e-5, atol=1e-5)
    (tmp_path / "a.data").write_bytes(b"short")
    with pytest.raises(ValueError, match="beyond the end of 'a.data'"):
        load_onnx(path)
    (tmp_path / "a.data").unlink()
    with pytest.raises(FileNotFoundError):
        load_onnx(path)


@pytest.mark.parametrize("place", ["../a.data", "/etc/hostname", "C:\\a.data", "b/../../a.data", "link", "", "."])
def test_no_file_elsewhere_is_read(place: str, tmp_path: Path) -> None:
    outside, inside = tmp_path / "a.data", tmp_path / "in"
    inside.mkdir()
    path = beside(inside)
    (inside / "a.data").rename(outside)
    (inside / "link").symlink_to(outside)

    def moved(model: Any) -> None:
        for tensor in model.graph.initializer:
            next(entry for entry in tensor.external_data if entry.key == "location").value = place

    with pytest.raises(ValueError, match="is said to lie in .*, which is no"):
        load_onnx(changed(path, moved))


# What comes of a file


def test_it_trains_from_the_weights_of_the_file(tmp_path: Path) -> None:
    network, weights = load_onnx(cnn(tmp_path))
    x, labels = channels_last(rows((32, 2, 4, 4))), np.arange(32) % 2
    result = training.fit(
        network, (x, labels), initial=weights, epochs=8, optimizer="adam", step_size=0.01, batch_size=16
    )
    losses = [epoch.loss for epoch in result.history]
    assert losses[-1] < 0.9 * losses[0]


def test_names_are_those_of_the_nodes(tmp_path: Path) -> None:
    def named(model: Any) -> None:
        names = ("/features/features.0/Conv", "/features/features.1/Relu", "/flat/Flatten_2", "node_linear")
        for node, name in zip(model.graph.node, names, strict=True):
            node.name = name

    network, weights = load_onnx(changed(cnn(tmp_path), named))
    assert network.names == ("features_0", "features_1", "flatten", "linear")
    assert weights.keys() == {"features_0", "linear"}


def test_outputs_of_a_graph_have_the_names_of_the_file(tmp_path: Path) -> None:
    body = "a = Relu(x) b = MatMul(a, v) kind = Add(b, c) d = MatMul(a, w) price = Tanh(d)"
    path = written(
        tmp_path / "a.onnx", VECTOR, body, {"v": (4, 3), "c": (3,), "w": (4, 1)}, "float[] kind, float[] price"
    )
    network, _ = load_onnx(path)
    assert network.output_shapes == {"kind": (3,), "price": (1,)}


def test_without_the_package_it_is_told_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; import sparkdl.interchange; assert 'onnx' not in sys.modules; sys.modules['onnx'] = None\n"
        f"sparkdl.interchange.load_onnx({str(cnn(tmp_path))!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert re.search(r"ImportError: .*needs the package onnx; pip install 'sparkdl-jax\[onnx\]'", done.stderr)


@pytest.mark.parametrize(
    ("names", "inputs", "outputs"),
    [
        (("a.b", "a_b", "y.1", "y_1"), ["a_b", "a_b_2"], ("y_1", "y_1_2")),
        (("größe", "gräße", "é", "è"), ["gr_e", "gr_e_2"], ("output", "output_2")),
        (("a", "b", "y", "y"), ["a", "b"], ("y", "y_2")),
    ],
)
def test_inputs_and_outputs_whose_names_would_become_one_stay_several(
    names: Any, inputs: Any, outputs: Any, tmp_path: Path
) -> None:
    body = "d = Sub(one, other) first = Relu(d)" + " second = Neg(d)" * (names[2] != names[3])
    path = written(tmp_path / "a.onnx", "float[b, 3] one, float[b, 3] other", body, outputs="float[b, 3] first")
    model = onnx.load(path)
    new = dict(zip(("one", "other", "first", "second"), names, strict=True))
    for node in model.graph.node:
        node.input[:], node.output[:] = ([new.get(name, name) for name in both] for both in (node.input, node.output))
    for given in (*model.graph.input, *model.graph.output):
        given.name = new[given.name]
    model.graph.output.add().CopyFrom(model.graph.output[0])
    model.graph.output[1].name = names[3]
    onnx.save(model, path)
    network, weights = load_onnx(path)
    assert list(network.input_shapes) == inputs
    assert network.output_names == outputs
    x = rows((4, 3)), rows((4, 3))[::-1].copy()
    for found, wanted in zip(network.forward(weights, x), computed(path, *x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
