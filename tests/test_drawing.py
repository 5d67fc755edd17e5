"""Drawings of networks: nothing lies upon anything else, and what is within a layer can be seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparkdl import Graph, Network, Same, models
from sparkdl.layers import Add, BatchNorm, Concatenate, Conv, Dense, Embedding, Relu, Residual

BODY = [Conv(4, (3, 3), padding="same", bias=False), BatchNorm(), Relu()]
WIDE = [Conv(6, (3, 3), strides=2, padding="same"), BatchNorm()]
BLOCKS = Network([Residual(BODY), Residual(WIDE, [Conv(6, (1, 1), strides=2)]), Relu()], input_shape=(8, 8, 4))
TWINS = Graph(
    inputs={"left": (3,), "right": (3,), "a_rather_long_name_of_an_input": ()},
    nodes={
        "one": (Network([Dense(4), Relu()]), "left"),
        "two": (Same("one"), "right"),
        "both": (Add(), "one", "two"),
        "once_more": (Dense(4), "both"),
        "place": (Embedding(1_000_000, 4, unknown=True), "a_rather_long_name_of_an_input"),
        "all": (Concatenate(), "once_more", "left", "place", "one"),
        "kind": (Dense(2), "all"),
        "price": (Dense(1), "both"),
    },
    outputs=("kind", "price"),
)
ODD = Graph(
    {"$_$": (3,), "<i>&#35;": (3,)},
    {" ": (Dense(3), "$_$"), 'a "b" -> $\\c$': (Add(), " ", "<i>&#35;"), "y\nz": (Dense(1), 'a "b" -> $\\c$')},
    "y\nz",
)
CATEGORIES = {"city": 50, "job": 20, "sex": 3}
DRAWN = {
    "residual blocks": (BLOCKS, True),
    "twins": (TWINS, False),
    "twins within": (TWINS, True),
    "odd names": (ODD, False),
    "resnet18": (models.resnet18((32, 32, 3), 10), True),
    "unet": (models.unet((32, 32, 1), 2, 8, 3), False),
    "dlrm": (models.dlrm(CATEGORIES, 6), False),
    "two towers": (models.two_tower({"user": 600}, {"film": 9000, "genre": 20}), False),
    "wide and deep": (models.wide_and_deep(CATEGORIES, 6, crosses=[("city", "job")]), False),
}


def corners(artist: Any) -> Any:
    """(left, top), (right, bottom) in inches of the drawing."""
    return np.sort(np.array(artist.get_extents().transformed(artist.axes.transData.inverted())), axis=0)


def drawn(network: Any, nested: bool) -> tuple[Any, Any, list[Any]]:
    """The axes, the boxes' corners by the first line of their text, and points along every line."""
    pytest.importorskip("matplotlib")
    from matplotlib.patches import FancyBboxPatch, PathPatch

    figure = network.plot(nested=nested)
    (axes,) = figure.axes
    boxes = [corners(patch) for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    ways = [patch.get_path() for patch in axes.patches if isinstance(patch, PathPatch)]
    lines = [way.cleaned(curves=False).interpolated(5).vertices[:-5] for way in ways]
    return axes, boxes, lines


@pytest.mark.parametrize("name", DRAWN)
def test_no_box_lies_on_another_and_no_line_on_a_box(name: str) -> None:
    axes, boxes, lines = drawn(*DRAWN[name])
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    for number, (least, most) in enumerate(boxes):
        assert left < least[0] < most[0] < right and top < least[1] < most[1] < bottom
        for others_least, others_most in boxes[:number]:
            assert (others_least >= most).any() or (others_most <= least).any()
        for line in lines:
            inside = (line > least + 0.01).all(axis=1) & (line < most - 0.01).all(axis=1)
            assert not inside.any()


@pytest.mark.parametrize("name", DRAWN)
def test_every_text_fits_its_box(name: str) -> None:
    axes, boxes, _ = drawn(*DRAWN[name])
    axes.figure.canvas.draw()
    texts = [corners_of_text(text) for text in axes.texts]
    assert len(texts) == len(boxes)
    for text, (least, most) in zip(texts, boxes, strict=True):
        assert (text[0] > least).all() and (text[1] < most).all()


def corners_of_text(text: Any) -> Any:
    extent = text.get_window_extent().transformed(text.axes.transData.inverted())
    return np.sort(np.array(extent), axis=0)


def test_names_are_shown_as_they_are() -> None:
    axes, _, _ = drawn(ODD, False)
    assert [text.get_text().rsplit("\n", 2)[0] for text in axes.texts] == [*ODD.inputs, *ODD.nodes]
    assert not any(text.get_parse_math() for text in axes.texts)
    lines = [line.strip() for line in ODD.to_mermaid().split("\n")]
    names = [line.split('"')[1].split("<br/>")[0] for line in lines if '["' in line]
    assert names == ["$_$", "#lt;i#gt;#amp;#35;35;", " ", "a #quot;b#quot; -#gt; $\\c$", "y z"]
    assert [line.count('"') for line in lines if '"' in line] == [2] * 5


def test_a_notebook_shows_figures_as_pictures() -> None:
    pytest.importorskip("matplotlib")
    assert BLOCKS.plot()._repr_png_().startswith(b"\x89PNG")


def test_lines_lead_from_what_is_read_to_what_reads_it() -> None:
    axes, boxes, lines = drawn(TWINS, False)
    names = [text.get_text().split("\n")[0] for text in axes.texts]
    assert names == [*TWINS.inputs, *TWINS.nodes]
    at = dict(zip(names, boxes, strict=True))
    ends = []
    for source, reader in ((source, name) for name, (_, *sources) in TWINS.nodes.items() for source in sources):
        (left, _), (right, below) = at[source]
        (start, above), (stop, _) = at[reader]
        ends.append([(left + right) / 2, below, (start + stop) / 2, above])
    drawn_ends = [[*line[0], *line[-1]] for line in lines]
    np.testing.assert_allclose(drawn_ends, ends, atol=0.02)


def test_what_is_within_layers_is_drawn_by_its_path() -> None:
    plain, nested = BLOCKS.to_mermaid(), BLOCKS.to_mermaid(nested=True)
    assert '"residual_0<br/>Residual of 4 layers<br/>(8, 8, 4)"' in plain and "body" not in plain
    names = [
        "features",
        *(f"residual_0/body/{name}" for name in ("conv_0", "batch_norm_1", "relu_2")),
        "residual_0/sum",
    ]
    names += ["residual_1/body/conv_0", "residual_1/body/batch_norm_1", "residual_1/shortcut/conv_0", "residual_1/sum"]
    names.append("relu_2")
    number = {name: f"n{at}" for at, name in enumerate(names)}
    for name in names:
        assert f'{number[name]}["{name}<br/>' in nested
    arrows = {
        ("features", "residual_0/body/conv_0"),
        ("residual_0/body/conv_0", "residual_0/body/batch_norm_1"),
        ("residual_0/body/batch_norm_1", "residual_0/body/relu_2"),
        ("residual_0/body/relu_2", "residual_0/sum"),
        ("features", "residual_0/sum"),
        ("residual_0/sum", "residual_1/body/conv_0"),
        ("residual_1/body/conv_0", "residual_1/body/batch_norm_1"),
        ("residual_1/body/batch_norm_1", "residual_1/sum"),
        ("residual_0/sum", "residual_1/shortcut/conv_0"),
        ("residual_1/shortcut/conv_0", "residual_1/sum"),
        ("residual_1/sum", "relu_2"),
    }
    told = {line.strip() for line in nested.split("\n") if "-->" in line}
    assert told == {f"{number[source]} --> {number[reader]}" for source, reader in arrows}
    assert f"class {number['relu_2']} output" in nested


def test_a_shared_layer_is_one_box_that_says_whose_it_is() -> None:
    nested = TWINS.to_mermaid(nested=True)
    assert '"two<br/>same as one<br/>(4,)"' in nested and '"one/dense_0<br/>Dense(units=4)' in nested
    alone = TWINS.up_to("two").to_mermaid(nested=True)  # which has no other one to be the same as
    assert '"two/dense_0<br/>Dense(units=4)' in alone and "same as" not in alone
