"""Graphs: derivatives of the whole, shared weights, what is cut out of them, drawings, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl import Graph, Network, Same
from sparkdl.base_network import BaseNetwork
from sparkdl.layers import (
    Add,
    BatchNorm,
    Concatenate,
    Context,
    Conv,
    Dense,
    Embedding,
    Flatten,
    GlobalAvgPool,
    Layer,
    Multiply,
    Normalization,
    Relu,
    Tanh,
)
from sparkdl.layers.base import Weights
from sparkdl.weights import updated

pytestmark = pytest.mark.usefixtures("unoptimized")

TASKS = Graph(
    inputs={"photo": (6, 6, 2), "facts": (3,)},
    nodes={
        "body": (Network([Conv(3, (3, 3)), BatchNorm(), Tanh(), Flatten()]), "photo"),
        "known": (Network([Dense(4), Tanh()]), "facts"),
        "both": (Concatenate(), "body", "known", "facts"),
        "kind": (Dense(3), "both"),  # an output that is used inside, too
        "hint": (Concatenate(), "kind", "known"),
        "price": (Dense(1), "hint"),
    },
    outputs=("price", "kind"),
)
TOWER = Network([Dense(4), BatchNorm(), Tanh()])
TWINS = Graph(
    {"question": (5,), "answer": (5,)},
    {"a": (TOWER, "question"), "b": (Same("a"), "answer"), "both": (Multiply(), "a", "b")},
    "both",
)


def case(graph: Graph, rows: int = 6) -> tuple[Weights, Any, Any, Context]:
    """Weights, x, dy and the context of a step, in float64."""
    random = np.random.default_rng(3)
    weights = jax.tree.map(lambda w: jnp.asarray(random.uniform(0.2, 1, w.shape)), graph.abstract_weights())
    x, dy = (
        parts[0] if len(parts) == 1 else parts
        for parts in (
            tuple(jnp.asarray(random.normal(size=(rows, *shape))) for shape in shapes.values())
            for shapes in (graph.input_shapes, graph.output_shapes)
        )
    )
    return weights, x, dy, Context(jax.random.key(1), jnp.asarray(random.uniform(0.5, 2, rows)))


def assert_close(actual: Any, expected: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11), actual, expected)


@pytest.mark.parametrize(
    "graph",
    [
        TASKS,
        TASKS.frozen("known"),
        TASKS.frozen("body/conv_0", "kind"),
        TASKS.frozen(until="both"),
        TWINS,
        Graph({"f": (3,)}, {"inner": (TASKS.up_to("known"), "f"), "y": (Add(), "inner", "inner")}, "y"),
    ],
    ids=["tasks", "a branch frozen", "within a branch and an output", "all below", "twins", "nested"],
)
def test_backward_is_the_derivative_of_the_whole(graph: Graph, float64: None) -> None:
    weights, x, dy, context = case(graph)
    learned = graph.learned(weights)

    def forward(learned: Weights, x: Any) -> Any:
        return graph.train_forward(updated(weights, learned), x, context)[0]

    @jax.jit
    def by_kernels(weights: Weights, x: Any, dy: Any) -> tuple[Any, Any]:
        y, kept = graph.train_forward(weights, x, context)
        return tuple(graph.train_backward(weights, x, y, dy, kept, context, delta) for delta in (True, False))

    expected = jax.jit(lambda learned, x, dy: jax.vjp(forward, learned, x)[1](dy))(learned, x, dy)
    (dx, gradient), (nothing, same) = by_kernels(weights, x, dy)
    assert_close((gradient, dx), expected)
    assert nothing is None and jax.tree.all(jax.tree.map(np.array_equal, same, gradient))


def test_what_is_frozen_with_all_below_it_is_passed_over_on_the_way_back() -> None:
    calls: list[str] = []

    class Watched(Dense):
        def train_backward(self, *arguments: Any) -> Any:
            calls.append(f"{self.units}{' with delta' if arguments[-1] else ''}")
            return super().train_backward(*arguments)

    graph = Graph(
        {"x": (2,)},
        {
            "below": (Watched(3), "x"),
            "beside": (Watched(4), "x"),
            "above": (Watched(5), "below"),
            "both": (Concatenate(), "above", "beside"),
            "end": (Watched(6), "both"),
        },
        "end",
    )
    for network, expected in (
        (graph, ["6 with delta", "5 with delta", "4", "3"]),
        (graph.frozen("beside"), ["6 with delta", "5 with delta", "3"]),
        (graph.frozen(until="above"), ["6 with delta", "4"]),
        (graph.frozen("below", "above", "beside"), ["6"]),
    ):
        calls.clear()
        weights, x, dy, context = case(network)
        y, kept = network.train_forward(weights, x, context)
        network.train_backward(weights, x, y, dy, kept, context, False)
        assert calls == expected


def test_nodes_that_share_weights_have_one_set_of_them(float64: None) -> None:
    weights, x, _, context = case(TWINS)
    assert list(weights) == ["a"]
    left, right = (TOWER.forward(weights["a"], side) for side in x)
    np.testing.assert_allclose(TWINS.forward(weights, x), left * right, rtol=1e-12)
    _, kept = TWINS.train_forward(weights, x, context)
    found = TWINS.new_statistics(weights, kept)["a"]["batch_norm_1"]
    share = np.asarray(context.row_weights)[:, None] / float(context.row_weights.sum())
    mean = np.asarray(weights["a"]["batch_norm_1"]["mean"])
    momentum = BatchNorm().momentum
    for side in x:  # one after the other
        dense = np.asarray(side) @ np.asarray(weights["a"]["dense_0"]["kernel"]) + np.asarray(
            weights["a"]["dense_0"]["bias"]
        )
        mean = momentum * mean + (1 - momentum) * (share * dense).sum(axis=0)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-9)
    assert float(TWINS.penalty(weights)) == 0
    regular = Graph(
        TWINS.inputs, {"a": (Dense(4, l2=0.5), "question"), "b": (Same("a"), "answer"), "y": (Add(), "a", "b")}, "y"
    )
    own = regular.init(0)
    assert regular.penalty(own) == pytest.approx(0.25 * float((own["a"]["kernel"] ** 2).sum()))


def test_up_to_keeps_only_what_a_node_needs(float64: None) -> None:
    weights, x, _, _ = case(TASKS)
    part = TASKS.up_to("known")
    assert part.input_shapes == {"facts": (3,)} and part.output_shapes == {"known": (4,)}
    own = {name: weights[name] for name in part.abstract_weights()}
    np.testing.assert_array_equal(part.forward(own, x[1]), TASKS.activations(weights, x, ["known"])[1]["known"])
    two = TASKS.up_to("both", "known")
    assert two.outputs == ("both", "known") and list(two.nodes) == ["body", "known", "both"]


def test_a_tower_that_shares_weights_can_stand_alone(float64: None) -> None:
    weights, x, _, _ = case(TWINS)
    tower = TWINS.up_to("b")
    assert tower.input_shapes == {"answer": (5,)}
    assert BaseNetwork.from_json(tower.to_json()) == tower
    np.testing.assert_array_equal(tower.forward(weights, x[1]), TOWER.forward(weights["a"], x[1]))
    assert not tower.frozen("b").learned(weights)


def test_a_new_head_leaves_what_it_does_not_need() -> None:
    changed = TASKS.with_head({"wide": (Dense(8), "known"), "count": (Dense(1), "wide")})
    assert list(changed.nodes) == ["known", "wide", "count"] and changed.outputs == ("count",)
    kept = TASKS.with_head({"count": (Dense(1), "both")}, outputs=("kind", "count"))
    assert list(kept.nodes) == ["body", "known", "both", "kind", "count"]
    with pytest.raises(ValueError, match="has a 'kind' already"):
        TASKS.with_head({"kind": (Dense(1), "both")})


def test_a_frozen_graph_learns_nothing_and_its_new_head_does() -> None:
    for graph in (TWINS, TWINS.up_to("b")):
        frozen = replace(graph, trainable=False)
        assert not frozen.learned(frozen.init(0))
        changed = frozen.with_head({"new": (Dense(2), "b")})
        assert changed.learned(changed.init(0)).keys() == {"new"}


@pytest.mark.parametrize("nodes", [{}, [Dense(2)], Dense(2), None])
def test_a_head_that_is_no_dict_is_refused(nodes: Any) -> None:
    with pytest.raises(
        ValueError, match="nodes of with_head must be a dict of new nodes by name, as of Graph, received"
    ):
        TASKS.with_head(nodes)
    with pytest.raises(ValueError, match="up_to expects names of nodes, received none"):
        TASKS.up_to()


def test_a_graph_is_its_json_and_prints_as_it_is_written() -> None:
    for graph in (TASKS, TWINS, TASKS.frozen("body/conv_0")):
        text = json.dumps(graph.to_json(), sort_keys=True)
        assert BaseNetwork.from_json(text) == graph and hash(BaseNetwork.from_json(text)) == hash(graph)
        assert eval(repr(graph)) == graph
    swapped = Graph(
        {"question": (5,), "answer": (5,)},
        {"a": (TOWER, "answer"), "b": (Same("a"), "question"), "both": (Multiply(), "a", "b")},
        "both",
    )
    assert swapped != TWINS
    assert Graph(dict(reversed(list(TASKS.inputs.items()))), TASKS.nodes, TASKS.outputs) != TASKS


def test_paths_lead_into_nodes() -> None:
    assert TASKS.paths[:5] == ("body", "body/conv_0", "body/batch_norm_1", "body/tanh_2", "body/flatten_3")
    assert [leaf.path for leaf in TWINS.leaves()][-4:-1] == ["b/dense_0", "b/batch_norm_1", "b/tanh_2"]
    assert not TASKS.frozen("body/conv_0").nodes["body"][0].layers[0].trainable


@pytest.mark.parametrize(
    ("inputs", "nodes", "outputs", "message"),
    [
        ({"x": (2,)}, {"y": (Dense(2), "z")}, "y", "Node 'y' reads 'z', which is no input and no node above it"),
        ({"x": (2,)}, {"y": (Dense(2), "z"), "z": (Dense(2), "x")}, "y", "Node 'y' reads 'z'"),
        ({"x": (2,)}, {"y": (Dense(2), "y")}, "y", "Node 'y' reads 'y'"),
        ({"x": (2,)}, {"x": (Dense(2), "x")}, "x", "'x' is an input and a node"),
        ((("x", (2,)), ("x", (3,))), {"y": (Dense(2), "x")}, "y", "'x' is twice"),
        ({"x": (2,), "u": (2,)}, {"y": (Dense(2), "x")}, "y", "Input 'u' is read by no node"),
        ({"x": (2,)}, {"y": (Dense(2), "x"), "u": (Dense(2), "x")}, "y", "Node 'u' is read by no node"),
        ({"x": (2,)}, {"y": (Dense(2), "x", "x")}, "y", "Node 'y' is a Dense, which reads one source.*Concatenate"),
        ({"x": (2,)}, {"y": (Add(), "x")}, "y", r"Node 'y' \(Add\): Add expects the outputs of two layers"),
        ({"x": (2, 2)}, {"y": (Dense(2), "x")}, "y", r"Node 'y' \(Dense\): Dense expects rows of shape"),
        ({"x": (2,)}, {"y": (TWINS, "x")}, "y", "Node 'y' is a Graph of 2 inputs, received 1 sources"),
        ({"x": (2,)}, {"y": (Same("z"), "x")}, "y", "weights of 'z', which is no node above it"),
        (
            {"x": (2,)},
            {"y": (Network([Dense(3)]), "x"), "z": (Same("y"), "y")},
            "z",
            r"Node 'z' \(Network\): Network is to share 'y', and expects \{.*\(3, 3\).*received .*\(2, 3\).*same sizes",
        ),
        ({"x": (2,)}, {"y": (Dense(2), "x")}, "x", "outputs names 'x', which is no node"),
        ({"x": (2,)}, {"y": (Dense(2), "x")}, (), "outputs must name one node or several"),
        ({"x": (2,)}, {"y": (Dense(2), "x")}, ("y", "y"), "outputs must name one node or several that differ"),
        ({"x": (2,)}, {"a.b": (Dense(2), "x")}, "a.b", "Names of a graph must be strings without any of"),
        ({"x": (-1,)}, {"y": (Dense(2), "x")}, "y", "Input 'x' of Graph must have a shape of positive integers"),
        ({"x": (2,)}, {"y": Dense(2)}, "y", r"Node 'y' must be \(layer, source, ...\)"),
        ({}, {"y": (Dense(2), "x")}, "y", "inputs of Graph must be a dict by name"),
        ({"a": (6, 6, 2), "b": (3,)}, {"y": (TASKS, "a", "b")}, "y", "Layer 'y' has 2 outputs, but within a network"),
    ],
)
def test_what_fits_nothing_is_refused_by_name(inputs: Any, nodes: Any, outputs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Graph(inputs, nodes, outputs)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (("b", "a"), r"shape \(batch, 2\) for input 'a', received \(5, 3\)"),
        ("a", r"Graph reads 2 inputs, received \(5, 2\); give it a tuple"),
        ({"a": "b", "b": "b"}, r"shape \(batch, 2\) for input 'a', received \(5, 3\)"),
        ({"a": "a", "c": "b"}, "x must have the inputs a, b, received a, c"),
    ],
)
def test_arrays_of_other_inputs_are_refused_by_what_computes(x: Any, message: str) -> None:
    graph = Graph({"a": (2,), "b": (3,)}, {"both": (Concatenate(), "a", "b"), "y": (Dense(1), "both")}, "y")
    arrays = {"a": np.ones((5, 2), "float32"), "b": np.ones((5, 3), "float32")}
    with pytest.raises(ValueError, match=message):
        graph.forward(graph.init(0), jax.tree.map(lambda name: arrays[name], x))


def test_arrays_may_be_given_by_name() -> None:
    graph = Graph({"b": (2,), "a": (3,)}, {"both": (Concatenate(), "a", "b"), "y": (Dense(1), "both")}, "y")
    weights, x = graph.init(0), (np.ones((5, 2), "float32"), np.full((5, 3), 2.0, "float32"))
    expected = graph.forward(weights, x)
    np.testing.assert_array_equal(graph.forward(weights, {"a": x[1], "b": x[0]}), expected)
    alone = Network([Dense(3)], input_shape=(2,))
    np.testing.assert_array_equal(alone.forward(alone.init(0), {"features": x[0]}), alone.forward(alone.init(0), x[0]))


def test_the_summary_tells_what_is_read() -> None:
    lines = TWINS.summary().splitlines()
    assert lines[0].split()[:2] == ["node", "reads"]
    weights = 5 * 4 + 4 + 4 * 4
    assert [line.split()[-2] for line in lines if line.startswith(("0", "1", "2"))] == [str(weights), "0", "0"]
    assert "a, b" in TWINS.summary() and lines[-1].split() == ["total", str(weights), "40"]


def test_the_summary_tells_of_a_long_layer_how_much_is_in_it() -> None:
    deep = Network([Network([Dense(3), Tanh()] * 9), Network([Dense(2)])], input_shape=(4,))
    graph = Graph({"x": (4,)}, {"deep": (deep.layers[0], "x"), "last": (deep.layers[1], "deep")}, "last")
    for summary in (deep.summary(), graph.summary()):
        assert "Network of 18 layers " in summary and "Network(layers=(Dense(units=2),)) " in summary
        assert max(map(len, summary.splitlines())) < 120


def test_a_summary_is_not_as_wide_as_its_widest_layer() -> None:
    names = [f"category_{number}" for number in range(30)]
    constants = tuple(0.1234567 * number for number in range(30))
    nodes = {
        "scaled": (Normalization(constants, constants), "numbers"),
        **{n: (Embedding(9, 2), f"{n}_id") for n in names},
    }
    graph = Graph(
        {"numbers": (30,)} | {f"{name}_id": () for name in names},
        {**nodes, "all": (Concatenate(), "scaled", *names)},
        "all",
    )
    lines = graph.summary().splitlines()
    assert max(map(len, lines)) < 200
    assert "scaled: Normalization(mean=(0.0, 0.1234567" in lines[33] and "..." in lines[33]
    assert "all: Concatenate()" in lines[-3] and "scaled, category_0, " in lines[-3]


def test_a_drawing_shows_every_layer_and_all_that_it_reads(tmp_path: Path) -> None:
    text = TASKS.to_mermaid()
    names = [*TASKS.inputs, *TASKS.nodes]
    shapes = dict(zip(names, TASKS.shapes(TASKS.row_shape()), strict=True))
    for number, name in enumerate(names):
        assert f'n{number}["{name}<br/>' in text and f'{shapes[name]}"]' in text
        for source in TASKS.nodes.get(name, ())[1:]:
            assert f"n{names.index(source)} --> n{number}" in text
    assert text.count("-->") == sum(len(node) - 1 for node in TASKS.nodes.values())
    pytest.importorskip("matplotlib")
    figure = TASKS.plot(tmp_path / "tasks.png")
    assert (tmp_path / "tasks.png").read_bytes().startswith(b"\x89PNG")
    (axes,) = figure.axes
    drawn = {text.get_text().split("\n")[0]: text.get_position() for text in axes.texts if text.get_text()}
    assert set(drawn) == set(names) and len(set(drawn.values())) == len(names)
    for name, (_, *sources) in TASKS.nodes.items():
        assert all(drawn[source][1] < drawn[name][1] for source in sources)
    Network([Conv(2, (3, 3)), Relu(), GlobalAvgPool()], input_shape=(5, 5, 1)).plot(tmp_path / "chain.svg")
    assert b"<svg" in (tmp_path / "chain.svg").read_bytes()


def test_a_layer_of_ones_own_can_be_a_node() -> None:
    class Halved(Layer):
        def forward(self, weights: Weights, x: Any) -> Any:
            return x / 2

    graph = Graph({"x": (3,)}, {"y": (Halved(), "x")}, "y")
    np.testing.assert_array_equal(graph.forward({}, jnp.ones((2, 3))), np.full((2, 3), 0.5))
