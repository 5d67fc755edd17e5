"""Masks in ONNX files: as an input, rows of any length have them within; made by a file, they are causal attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from onnx_graphs import computed, rows, written

from sparkdl.interchange import load_onnx
from sparkdl.layers import Ragged

pytestmark = pytest.mark.usefixtures("unoptimized")

ROWS, STEPS, SIZE = 3, 6, 4
LENGTHS = np.array([6, 2, 4])
X = rows((ROWS, STEPS, SIZE))
MASK = (np.arange(STEPS) < LENGTHS[:, None]).astype("int64")

QUERIES = (
    "xq = MatMul(x, wq) xk = MatMul(x, wk) xv = MatMul(x, wv) hq = Reshape(xq, heads) hk = Reshape(xk, heads) "
    "hv = Reshape(xv, heads) q = Transpose<perm=[0, 2, 1, 3]>(hq) k = Transpose<perm=[0, 2, 3, 1]>(hk) "
    "v = Transpose<perm=[0, 2, 1, 3]>(hv) d = MatMul(q, k) s = Div(d, root)"
)
TAKEN = "a = Softmax(m) t = MatMul(a, v) o = Transpose<perm=[0, 2, 1, 3]>(t) j = Reshape(o, joined) y = MatMul(j, wo)"
POOLED = "e = Unsqueeze(mask, last) f = Cast<to=1>(e) p = Mul(x, f) c = ReduceSum<keepdims=0>(p, one)"
COUNTED = (
    "sizes = Shape(mask) rows_ = Slice(sizes, z, one) steps_ = Slice(sizes, one, two) n = Squeeze(rows_, z) "
    "l = Squeeze(steps_, z) every_row = Range(zero, n, first) every_step = Range(zero, l, first) "
    "ir = Unsqueeze(every_row, behind) is = Unsqueeze(every_step, before)"
)
CONSTANTS: dict[str, Any] = {name: (SIZE, SIZE) for name in ("wq", "wk", "wv", "wo")} | {
    "heads": np.array([0, 0, 2, 2]), "joined": np.array([0, 0, SIZE]), "root": np.float32(np.sqrt(2)),
    "last": np.array([-1]), "two": np.array([2]), "one": np.array([1]), "z": np.array([0]), "zero": np.int64(0),
    "first": np.int64(1), "one_": np.float32(1), "none": np.float32(0), "least": np.float32(np.finfo("float32").min),
    "between": np.array([1, 2]), "behind": np.array([1, 2, 3]), "before": np.array([0, 1, 2]), "tiny": np.float32(1e-9),
    "upper": np.array([0, 1, 3]),
}  # fmt: skip

WHOLE = {
    "scores less the mask's opposite": (
        f"{QUERIES} g = Unsqueeze(mask, between) c = Cast<to=1>(g) i = Sub(one_, c) h = Mul(i, least) "
        f"m = Add(s, h) {TAKEN}"
    ),
    "scores where the mask is not": (
        f"{QUERIES} g = Unsqueeze(mask, between) e = Equal(g, zero) m = Where(e, least, s) {TAKEN}"
    ),
    "a mask that is the same for every query": (
        f"{QUERIES} w = Shape(s) g = Unsqueeze(mask, between) c = Cast<to=1>(g) x2 = Expand(c, w) i = Sub(one_, x2) "
        f"b = Cast<to=9>(i) h = Where(b, least, i) m = Add(s, h) {TAKEN}"
    ),
    "a mask looked up by row and step": (
        f"{COUNTED} {QUERIES} b = Cast<to=9>(mask) u = Max(ir, is) us = Shape(u) er = Expand(ir, us) "
        "es = Expand(is, us) pr = Unsqueeze(er, last) ps = Unsqueeze(es, last) places = Concat<axis=-1>(pr, ps) "
        f"g = GatherND(b, places) h = Where(g, none, least) m = Add(s, h) {TAKEN}"
    ),
    "a mask looked up by places in a row": (
        f"{COUNTED} {QUERIES} b = Cast<to=9>(mask) flat = Flatten<axis=2>(b) of = Mul(ir, l) places = Add(is, of) "
        "g = Gather<axis=0>(flat, places) ps = Shape(places) r1 = Reshape(g, last) r = Reshape(r1, ps) "
        f"h = Where(r, none, least) m = Add(s, h) {TAKEN}"
    ),
    "rows that nothing is hidden from twice": (
        f"{QUERIES} g = Unsqueeze(mask, between) b = Cast<to=9>(g) h = Where(b, none, least) m = Add(s, h) "
        "a2 = Softmax(m) nan = IsNaN(a2) a = Where(nan, none, a2) "
        + TAKEN.removeprefix("a = Softmax(m) ")
    ),
}  # fmt: skip
CAUSAL = {
    "earlier steps of those that count": (
        f"{COUNTED} {QUERIES} asks = Unsqueeze(every_step, upper) c = LessOrEqual(is, asks) "
        "g = Unsqueeze(mask, between) b = Cast<to=9>(g) k2 = And(c, b) h = Where(k2, none, least) "
        f"m = Add(s, h) {TAKEN}"
    ),
    "two masks that add up": (
        f"{COUNTED} {QUERIES} w = Concat<axis=0>(steps_, steps_) f = Expand(one_, w) tri = Trilu<upper=0>(f) "
        "i2 = Sub(one_, tri) h2 = Mul(i2, least) g = Unsqueeze(mask, between) c = Cast<to=1>(g) i = Sub(one_, c) "
        f"h = Mul(i, least) hh = Add(h, h2) m = Add(s, hh) {TAKEN}"
    ),
}  # fmt: skip
MEANS = {
    "the mean of steps that count": f"{POOLED} n = ReduceSum<keepdims=0>(f, one) o = Clip(n, tiny) y = Div(c, o)",
    "of a mask as wide as the rows": (
        "w = Shape(x) e = Unsqueeze(mask, last) g = Expand(e, w) f = Cast<to=1>(g) p = Mul(f, x) "
        "c = ReduceSum<keepdims=0>(p, one) n = ReduceSum<keepdims=0>(f, one) o = Max(n, tiny) y = Div(c, o)"
    ),
}


def saved(path: Path, body: str, steps: int | str = "T", mask: str = "int64[N, {}] mask") -> Path:
    inputs = f"float[N, {steps}, {SIZE}] x, {mask.format(steps)}"
    return written(path, inputs, body, CONSTANTS)


def of_rows() -> Ragged:
    return Ragged(jnp.asarray(X), jnp.asarray(LENGTHS, "int32"))


@pytest.mark.parametrize("steps", ["T", STEPS], ids=["open", "given"])
@pytest.mark.parametrize("name", [*WHOLE, *CAUSAL])
def test_a_mask_of_attention_is_the_lengths_of_rows(name: str, steps: int | str, tmp_path: Path) -> None:
    path = saved(tmp_path / "a.onnx", (WHOLE | CAUSAL)[name], steps)
    network, weights = load_onnx(path)
    assert network.input_shapes == {"features": (None, SIZE)}
    (child,) = network.children
    assert (type(child.layer).__name__, child.layer.causal) == ("MultiHeadAttention", name in CAUSAL)
    (expected,) = computed(path, X, MASK)
    y = network.forward(weights, of_rows())
    valid = MASK.astype(bool)
    np.testing.assert_allclose(np.asarray(y.values)[valid], expected[valid], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MEANS)
def test_sums_over_a_mask_by_its_own_are_means(name: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "a.onnx", MEANS[name])
    network, weights = load_onnx(path)
    assert [type(child.layer).__name__ for child in network.children] == ["TimeMean"]
    (expected,) = computed(path, X, MASK)
    np.testing.assert_allclose(network.forward(weights, of_rows()), expected, rtol=1e-5, atol=1e-5)


def test_a_sum_over_a_mask_is_that_of_the_steps(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.onnx", POOLED.replace(" c =", " y ="))
    network, weights = load_onnx(path)
    assert [type(child.layer).__name__ for child in network.children] == ["TimeSum"]
    (expected,) = computed(path, X, MASK)
    np.testing.assert_allclose(network.forward(weights, of_rows()), expected, rtol=1e-5, atol=1e-5)


def test_a_mask_of_padding_is_one_by_its_name(tmp_path: Path) -> None:
    """As `src_key_padding_mask` of PyTorch's, which is true at padding."""
    body = f"{QUERIES} h = Where(mask_of_padding, least, none) g = Unsqueeze(h, between) m = Add(s, g) {TAKEN}"
    path = saved(tmp_path / "a.onnx", body, mask="bool[N, {}] mask_of_padding")
    network, weights = load_onnx(path)
    (expected,) = computed(path, X, MASK == 0)
    valid = MASK.astype(bool)
    np.testing.assert_allclose(
        np.asarray(network.forward(weights, of_rows()).values)[valid], expected[valid], rtol=1e-5, atol=1e-5
    )
    other = saved(tmp_path / "b.onnx", body.replace("_of_padding", ""), mask="bool[N, {}] mask")
    with pytest.raises(ValueError, match="hides the steps that a mask counts; an input of which padding is 1"):
        load_onnx(other)


@pytest.mark.parametrize(
    "body",
    [
        "e = Unsqueeze(mask, last) f = Cast<to=1>(e) y = Add(x, f)",
        "e = Unsqueeze(mask, last) f = Cast<to=1>(e) h = Add(f, one_) y = Mul(x, h)",
        "y = Cast<to=1>(mask)",
    ],
)
def test_a_mask_that_is_more_than_one_is_refused(body: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gives which steps are no padding, which is no layer by itself"):
        load_onnx(saved(tmp_path / "a.onnx", body))


@pytest.mark.parametrize("kind", ["float", "int64"])
def test_masks_of_numbers_are_inputs_as_others_are(kind: str, tmp_path: Path) -> None:
    """Rows of four numbers have no steps."""
    body = "f = Cast<to=1>(mask) m = Mul(x, f) y = Relu(m)"
    path = written(tmp_path / "a.onnx", f"float[N, 4] x, {kind}[N, 4] mask", body)
    network, weights = load_onnx(path)
    assert network.input_shapes == {"x": (4,), "mask": (4,)}
    x, mask = rows((3, 4)), rows((3, 4), 2).astype(kind.replace("float", "float32"))
    (expected,) = computed(path, x, mask)
    y = network.forward(weights, {"x": jnp.asarray(x), "mask": jnp.asarray(mask, "float32")})
    np.testing.assert_allclose(y, expected, rtol=1e-6)


OPEN = {
    "a triangle of ones": (
        "n = Concat<axis=0>(steps_, steps_) f = Expand(one_, n) tri = Trilu<upper=0>(f) e = Equal(tri, none) "
        "h = Where(e, least, none)"
    ),
    "a triangle above them": (
        "n = Concat<axis=0>(steps_, steps_) f = Expand(least, n) h = Trilu<upper=1>(f, first)"
    ),
    "steps that are compared": (
        "l = Squeeze(steps_, z) every = Range(zero, l, first) later = Add(every, first) asks = Unsqueeze(later, one) "
        "c = Less(every, asks) h = Where(c, none, least)"
    ),
    "steps that are compared the other way": (
        "l = Squeeze(steps_, z) every = Range(zero, l, first) asks = Unsqueeze(every, one) c = Greater(every, asks) "
        "h = Where(c, least, none)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPEN)
def test_attention_to_earlier_steps_of_rows_of_any_length(name: str, tmp_path: Path) -> None:
    body = f"sizes = Shape(x) steps_ = Slice(sizes, one, two) {OPEN[name]} {QUERIES} m = Add(s, h) {TAKEN}"
    path = written(tmp_path / "a.onnx", f"float[N, T, {SIZE}] x", body, CONSTANTS)
    network, weights = load_onnx(path)
    assert [child.layer.causal for child in network.children] == [True]
    (expected,) = computed(path, X)
    y = network.forward(weights, Ragged(jnp.asarray(X), jnp.full(ROWS, STEPS, "int32")))
    np.testing.assert_allclose(y.values, expected, rtol=1e-5, atol=1e-5)


def test_attention_to_later_steps_is_refused(tmp_path: Path) -> None:
    compared = OPEN["steps that are compared"].replace("Less(every, asks)", "Less(asks, every)")
    body = f"sizes = Shape(x) steps_ = Slice(sizes, one, two) {compared} {QUERIES} m = Add(s, h) {TAKEN}"
    with pytest.raises(ValueError, match="constants come to arrays of"):
        load_onnx(written(tmp_path / "a.onnx", f"float[N, T, {SIZE}] x", body, CONSTANTS))


POSITIONS = {
    "counted": "l = Squeeze(steps_, z) i = Range(zero, l, first) p = Gather(table, i) y = Add(x, p)",
    "cut from a table of numbers": "i = Slice(numbers, z, steps_, one) p = Gather(table, i) y = Add(x, p)",
    "and kinds, all of which are the first": (
        "i = Slice(numbers, z, steps_, one) k = GatherElements<axis=1>(kinds, i) w = Concat<axis=0>(rows_, steps_) "
        "ke = Expand(k, w) e = Gather(kind_table, ke) p = Gather(table, i) a = Add(x, e) y = Add(a, p)"
    ),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_of_rows_of_any_length_are_those_of_the_table(name: str, tmp_path: Path) -> None:
    constants = CONSTANTS | {
        "table": (9, SIZE), "kind_table": (2, SIZE), "numbers": np.arange(9)[None], "kinds": np.zeros((1, 9), "int64"),
    }  # fmt: skip
    body = f"sizes = Shape(x) rows_ = Slice(sizes, z, one) steps_ = Slice(sizes, one, two) {POSITIONS[name]}"
    path = written(tmp_path / "a.onnx", f"float[N, T, {SIZE}] x", body, constants)
    network, weights = load_onnx(path)
    assert type(network.children[-1].layer).__name__ == "LearnedPositions"
    x = X[:1] if "kinds" in name else X  # as the file's own Expand needs them
    (expected,) = computed(path, x)
    y = network.forward(weights, Ragged(jnp.asarray(x), jnp.full(len(x), STEPS, "int32")))
    np.testing.assert_allclose(y.values, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("steps", ["T", STEPS], ids=["open", "given"])
def test_positions_that_are_counted_behind_the_number_of_padding(steps: int | str, tmp_path: Path) -> None:
    """As of RoBERTa, whose padding is the word 1, and the first position of any row 2."""
    body = (
        "is = Equal(words, first) isnt = Not(is) i = Cast<to=6>(isnt) c = CumSum(i, first) m = Mul(c, i) "
        "l = Cast<to=7>(m) at = Add(l, first) e = Gather(table, words) p = Gather(places, at) y = Add(e, p)"
    )
    constants = {"first": np.int64(1), "table": (20, SIZE), "places": (12, SIZE)}
    path = written(tmp_path / "a.onnx", f"int64[N, {steps}] words", body, constants)
    network, weights = load_onnx(path)
    assert [type(child.layer).__name__ for child in network.children] == ["Embedding", "LearnedPositions"]
    words = np.where(MASK, rows((ROWS, STEPS), 16) + 3, 1)
    (expected,) = computed(path, words)
    own = jnp.asarray(words, "int32")
    y = network.forward(weights, own if steps == STEPS else Ragged(own, jnp.asarray(LENGTHS, "int32")))
    y, valid = getattr(y, "values", y), MASK.astype(bool)
    np.testing.assert_allclose(np.asarray(y)[valid], expected[valid], rtol=1e-5, atol=1e-6)


def test_an_input_that_is_one_number_is_a_constant(tmp_path: Path) -> None:
    """As the kinds of words of single texts."""
    constants = {"table": (20, SIZE), "kinds": (2, SIZE)}
    body = "e = Gather(table, words) k = Gather(kinds, types) y = Add(e, k)"
    path = written(tmp_path / "a.onnx", "int64[N, T] words, int64[N, T] types", body, constants)
    with pytest.raises(ValueError, match=r"can be given as constants=\{NAME: NUMBER\}"):
        load_onnx(path)
    with pytest.raises(ValueError, match=r"constants names \['kind'\], where its inputs are \['words', 'types'\]"):
        load_onnx(path, constants={"kind": 0})
    with pytest.raises(ValueError, match="constants has 0.5 for its input 'types', where a whole number was expected"):
        load_onnx(path, constants={"types": 0.5})
    network, weights = load_onnx(path, constants={"types": 1})
    assert network.input_shapes == {"features": (None,)}
    words = rows((ROWS, STEPS), 20)
    (expected,) = computed(path, words, np.ones_like(words))
    y = network.forward(weights, Ragged(jnp.asarray(words, "int32"), jnp.full(ROWS, STEPS, "int32")))
    np.testing.assert_allclose(y.values, expected, rtol=1e-6)
