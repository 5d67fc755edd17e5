"""A network as a drawing: its layers, what they read, and the shapes between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparkdl.layers.base import Shape
from sparkdl.layers.composite import Composite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, HEIGHT, GAP = 2.2, 0.6, 0.45  # inches of a box, and between two
INPUT, LAYER, OUTPUT = "#fff3d6", "#dde9f7", "#dff2df"


class Box(NamedTuple):
    """An input or a layer.

    Attributes
    ----------
    name, kind : str
        The layer's name, and its type with what differs from its defaults; "input".
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


def boxes(network: Composite, inputs: dict[str, Shape]) -> list[Box]:
    """The inputs, of these shapes of rows, and the layers, in the order of computation."""
    shapes = network.shapes(tuple(inputs.values()) if len(inputs) > 1 else next(iter(inputs.values())))
    found = [Box(name, "input", str(shape), (), INPUT) for name, shape in inputs.items()]
    for index, child in enumerate(network.children, start=len(inputs)):
        kind = type(child.layer).__name__ if isinstance(child.layer, Composite) else repr(child.layer)
        kind = f"same as {child.shared}" if child.shared and child.shared != child.name else kind
        color = OUTPUT if index in network.exits else LAYER
        found.append(Box(child.name, kind, str(shapes[index]), child.sources, color))
    return found


def mermaid(drawn: list[Box]) -> str:
    """The drawing as text of Mermaid."""
    lines = ["flowchart TD"]
    for number, box in enumerate(drawn):
        text = "<br/>".join(part.replace('"', "#quot;") for part in box[:3])
        lines.append(f'    n{number}["{text}"]')
        lines += [f"    n{source} --> n{number}" for source in box.sources]
    for kind, color in (("input", INPUT), ("layer", LAYER), ("output", OUTPUT)):
        if members := [f"n{number}" for number, box in enumerate(drawn) if box.color == color]:
            lines += [f"    classDef {kind} fill:{color},stroke:#555", f"    class {','.join(members)} {kind}"]
    return "\n".join(lines)


def figure(drawn: list[Box]) -> Figure:
    """The drawing as a matplotlib Figure; inputs on top, every layer below all that it reads."""
    from matplotlib.figure import Figure

    depth: list[int] = []
    for box in drawn:
        depth.append(1 + max((depth[source] for source in box.sources), default=-1))
    rows: list[list[int]] = [[] for _ in range(max(depth) + 1)]
    place: dict[int, float] = {}
    for level, row in enumerate(rows):
        row += [number for number, at in enumerate(depth) if at == level]
        row.sort(key=lambda number: _middle([place[source] for source in drawn[number].sources]))
        wanted = [_middle([place[source] for source in drawn[number].sources]) for number in row]
        first = _middle(wanted) - (len(row) - 1) / 2
        for at, number in enumerate(row):
            place[number] = max(first + at, place[row[at - 1]] + 1 if at else first)
    left, right = min(place.values()), max(place.values())
    width, height = (right - left + 1) * (WIDTH + GAP), len(rows) * (HEIGHT + GAP)
    drawing = Figure(figsize=(width, height))
    axes = drawing.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    middles = [
        ((place[number] - left + 0.5) * (WIDTH + GAP), (depth[number] + 0.5) * (HEIGHT + GAP))
        for number in range(len(drawn))
    ]
    for number, box in enumerate(drawn):
        x, y = middles[number]
        for source in box.sources:
            above, long = middles[source], depth[number] - depth[source] > 1
            bend = 0.25 if long and above[0] <= x else -0.25 if long else 0  # around what lies between
            arrow = {
                "arrowstyle": "-|>",
                "color": "#555",
                "connectionstyle": f"arc3,rad={bend}",
                "zorder": 1,
                "shrinkA": 0,
                "shrinkB": 0,
            }
            axes.annotate("", (x, y - HEIGHT / 2), (above[0], above[1] + HEIGHT / 2), arrowprops=arrow)
        text = f"{_short(box.name)}\n{_short(box.kind)}\n{box.shape}"
        style = {"boxstyle": "round,pad=0.35", "facecolor": box.color, "edgecolor": "#555"}
        axes.text(x, y, text, ha="center", va="center", fontsize=8, bbox=style, zorder=2)
    return drawing


def _middle(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
