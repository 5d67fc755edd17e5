"""A network as a drawing: its layers, what they read, and the shapes between them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkdl.drawing_layout import placed
from sparkdl.layers.base import Shape
from sparkdl.layers.chain import described
from sparkdl.layers.composite import Composite, read_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARGIN, GAP, BETWEEN = 0.15, 0.25, 0.5  # inches around all, between the boxes of a row, and between rows
FONT, LINE, EDGE = 8, 0.165, 0.16  # points of a letter, inches of a line of text, and of a box besides its text
LETTERS, LINES = 30, 3  # of a layer's text: most in a line, and most lines
CODES = str.maketrans({"#": "#35;", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "\n": " "})  # of Mermaid
INPUT, LAYER, OUTPUT = "#fff3d6", "#dde9f7", "#dff2df"


class Box(NamedTuple):
    """An input or a layer.

    Attributes
    ----------
    name, kind : str
        The layer's name, or path, and its type with what differs from its defaults; "input".
    shape : str
        Of a row that it puts out.
    sources : tuple of int
        The boxes that it reads.
    color : str
    """

    name: str
    kind: str
    shape: str
    sources: tuple[int, ...]
    color: str


def boxes(network: Composite, inputs: dict[str, Shape], nested: bool) -> list[Box]:
    """The inputs, of these shapes of rows, and the layers, in the order of computation.

    Parameters
    ----------
    network : Composite
    inputs : dict
        By name.
    nested : bool
        Whether layers made of layers are told by these, in place of one box.
    """
    found = [Box(name, "input", str(shape), (), INPUT) for name, shape in inputs.items()]
    shapes = tuple(inputs.values()) if len(inputs) > 1 else next(iter(inputs.values()))
    ends = _add(found, network, shapes, tuple(range(len(inputs))), nested, "")
    return [box._replace(color=OUTPUT) if number in ends else box for number, box in enumerate(found)]


def mermaid(drawn: list[Box]) -> str:
    """The drawing as text of Mermaid."""
    lines = ["flowchart TD"]
    for number, box in enumerate(drawn):
        text = "<br/>".join(part.translate(CODES) for part in box[:3])
        lines.append(f'    n{number}["{text}"]')
        lines += [f"    n{source} --> n{number}" for source in box.sources]
    for kind, color in (("input", INPUT), ("layer", LAYER), ("output", OUTPUT)):
        if members := [f"n{number}" for number, box in enumerate(drawn) if box.color == color]:
            lines += [f"    classDef {kind} fill:{color},stroke:#555", f"    class {','.join(members)} {kind}"]
    return "\n".join(lines)


def figure(drawn: list[Box]) -> Figure:
    """The drawing as a matplotlib Figure; inputs on top, every layer below all that it reads."""
    from sparkdl.pictures import Picture

    texts = ["\n".join((box.name, *_folded(box.kind), box.shape)) for box in drawn]
    widths = [max(map(_inches, text.split("\n"))) + EDGE for text in texts]
    heights = [(text.count("\n") + 1) * LINE + EDGE for text in texts]
    place = placed([box.sources for box in drawn], widths, GAP)
    tall = [max(own for own, row in zip(heights, place.rows, strict=True) if row == at) for at in sorted({*place.rows})]
    tops = [MARGIN + sum(tall[:row]) + row * BETWEEN for row in range(len(tall))]
    size = place.width + 2 * MARGIN, tops[-1] + tall[-1] + MARGIN
    drawing = Picture(figsize=size)
    axes = drawing.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-MARGIN, place.width + MARGIN), ylim=(size[1], 0))
    axes.axis("off")
    middles = [tops[row] + tall[row] / 2 for row in place.rows]
    for source, reader, passes in place.lines:
        rows = range(place.rows[source] + 1, place.rows[reader])
        way = [
            (place.middles[source], middles[source] + heights[source] / 2, tops[rows.start - 1] + tall[rows.start - 1])
        ]
        way += [(x, tops[row], tops[row] + tall[row]) for x, row in zip(passes, rows, strict=True)]
        way += [(place.middles[reader], tops[rows.stop], middles[reader] - heights[reader] / 2)]
        _draw_line(axes, way)
    for x, y, text, box, width, height in zip(place.middles, middles, texts, drawn, widths, heights, strict=True):
        _draw_box(axes, (x - width / 2, y - height / 2, width, height), box.color)
        axes.text(x, y, text, ha="center", va="center", fontsize=FONT, linespacing=1.3, zorder=3, parse_math=False)
    return drawing


def _add(
    found: list[Box], part: Composite, shapes: Any, entries: tuple[int, ...], nested: bool, path: str
) -> list[int]:
    """Add a network's layers, given the boxes that it reads and their shapes; the boxes that it puts out."""
    values, every = list(entries), part.shapes(shapes)
    for index, child in enumerate(part.children, start=len(entries)):
        sources = tuple(values[source] for source in child.sources)
        again = child not in part.owners
        if nested and isinstance(child.layer, Composite) and not again:
            inner = _add(found, child.layer, read_by(child, every), sources, nested, f"{path}{child.name}/")
            values.append(inner[0])  # within a network one is read
            continue
        kind = f"same as {path}{child.key}" if again else described(replace(child.layer, name=None))
        values.append(len(found))
        found.append(Box(f"{path}{child.name}", kind, str(every[index]), sources, LAYER))
    return [values[index] for index in part.exits]


def _folded(text: str) -> list[str]:
    """Lines of a text that is broken behind commas, and cut where it is too long for those."""
    lines = [""]
    for part in re.split(r"(?<=, )", text):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > LETTERS:
            lines.append("")
        lines[-1] += part
    lines = [line.rstrip() if len(line.rstrip()) <= 2 * LETTERS else f"{line[: 2 * LETTERS - 1]}…" for line in lines]
    return lines if len(lines) <= LINES else [*lines[: LINES - 1], f"{lines[LINES - 1]} …"]


def _inches(text: str) -> float:
    from matplotlib.textpath import TextPath

    plain = text.replace("$", r"\$")  # else what is between two of them is a formula
    return TextPath((0, 0), plain, size=FONT).get_extents().width / 72 if text.strip() else 0.0


def _draw_line(axes: Axes, way: list[tuple[float, float, float]]) -> None:
    """A line with an arrowhead: in each row straight down from y to y, between rows bent to the next x."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    points, codes = [(way[0][0], way[0][1])], [Path.MOVETO]
    for (x, top, bottom), (before, _, above) in zip(way[1:], way, strict=False):
        half = (above + top) / 2
        points += [(before, above), (before, half), (x, half), (x, top), (x, bottom)]
        codes += [Path.LINETO, Path.CURVE4, Path.CURVE4, Path.CURVE4, Path.LINETO]
    axes.add_patch(PathPatch(Path(points, codes), fill=False, edgecolor="#555", zorder=1))
    tip = way[-1][0], way[-1][2]
    head = [tip, (tip[0] - 0.04, tip[1] - 0.1), (tip[0] + 0.04, tip[1] - 0.1)]
    axes.fill(*zip(*head, strict=True), color="#555", linewidth=0, zorder=1)


def _draw_box(axes: Axes, bounds: tuple[float, float, float, float], color: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    x, y, width, height = bounds
    style = "round,pad=0,rounding_size=0.06"
    axes.add_patch(FancyBboxPatch((x, y), width, height, style, facecolor=color, edgecolor="#555", zorder=2))
