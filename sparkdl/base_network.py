"""What can be trained: a composite that knows the shapes of its inputs' rows, with named parts in and out."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np

from sparkdl.arrays import INTEGERS, Parts
from sparkdl.drawing import boxes, figure, mermaid
from sparkdl.generation import Generating
from sparkdl.layer_paths import stands_for
from sparkdl.layers.base import Array, Shape, Weights
from sparkdl.layers.composite import Leaf, own_shape
from sparkdl.layers.ragged import Ragged, abstract_rows, is_ragged, row_shape_of, step_shape, values_of
from sparkdl.specs import FORMAT, is_integer
from sparkdl.strings import Strings, common_strings
from sparkdl.transfer import started_from
from sparkdl.weights import count_weights, named_arrays

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from onnx import ModelProto

WIDEST = 72  # characters of a layer, and of what it reads, in a summary


@partial(jax.jit, static_argnums=(0, 1))
def _initialized(network: BaseNetwork, input_shape: Any, key: Array) -> Weights:
    """`init`, which JAX traces once for each network, however often its shapes are asked for."""
    return network.init(key, input_shape)


@dataclass(frozen=True)
class BaseNetwork(Generating):
    """Base of `Network` and `Graph`: all that training, scoring and saving know of a network.

    x  the array of the only input, or a tuple of those of all inputs, in their order; or a dict of arrays by input
    y  the array of the only output, or a tuple of those of all outputs
    """

    @property
    @abstractmethod
    def output_names(self) -> tuple[str, ...]:
        """Names of what it predicts, in the order of y; the labels have the same ones."""

    @property
    def output_shapes(self) -> dict[str, Shape]:
        """Shape of a row of everything that it predicts, by name."""
        return self.named(self.output_shape())

    @abstractmethod
    def summary(self) -> str:
        """A table of the layers: output shape, number of weights and multiply-adds for one row."""

    @property
    def integers(self) -> frozenset[str]:
        """Names of the inputs that it reads as integers, which no dtype of computation touches."""
        return frozenset(name for index, name in enumerate(self.input_shapes) if index in self.integer_entries)

    @property
    def limits(self) -> dict[str, int]:
        """Of inputs that choose rows of a table, as an Embedding's, how many there are: they are from 0 to below it."""
        return {name: limit for name, (limit, _) in self._smallest_tables.items()}

    @property
    def tables(self) -> dict[str, str]:
        """Of those inputs the path of the layer with the table, of the smallest where several read one."""
        return {name: path for name, (_, path) in self._smallest_tables.items()}

    @property
    def _smallest_tables(self) -> dict[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for name, readers in zip(self.input_shapes, self.named_readers, strict=True):
            own = [(limit, path) for path, layer in readers if (limit := layer.integer_limit) is not None]
            found |= {name: min(own, key=itemgetter(0))} if own else {}
        return found

    @property
    def most_steps(self) -> dict[str, int]:
        """Of the input of rows of any length, if there is one alone, how many steps they may have."""
        inputs, most = [name for name, shape in self.input_shapes.items() if is_ragged(shape)], self.longest()
        return {inputs[0]: most} if len(inputs) == 1 and most is not None else {}

    @property
    def strings(self) -> dict[str, Strings]:
        """Of the inputs that may be strings, how these become integers."""
        named = zip(self.input_shapes, self.readers, strict=True)
        found = {name: common_strings([layer.takes_strings for layer in layers]) for name, layers in named}
        return {name: how for name, how in found.items() if how is not None}

    @property
    def step_outputs(self) -> dict[str, str]:
        """By output that has a prediction for each step of rows of any length, the input whose rows are as long.

        "" stands for none: a layer such as `Masking` has left steps out.
        """
        shapes, lengths_of = self.shapes_and_lengths(self.row_shape())
        found, inputs = {}, list(self.input_shapes)
        for name, at in zip(self.output_names, self.exits, strict=True):
            if is_ragged(shapes[at]):
                found[name] = inputs[lengths_of[at]] if lengths_of[at] < len(inputs) else ""
        return found

    def path_shapes(self, paths: Collection[str]) -> dict[str, Any]:
        """Shape of a row of what each of the layers of these `paths` puts out; None first of rows of any length."""
        if not paths:
            return {}
        shapes = tuple(self.input_shapes.values())
        integers = self.integer_entries
        rows = [abstract_rows(1, shape, INTEGERS if at in integers else "float32") for at, shape in enumerate(shapes)]
        x = rows[0] if len(rows) == 1 else tuple(rows)
        _, found = jax.eval_shape(lambda weights, x: self.activations(weights, x, paths), self.abstract_weights(), x)
        return {
            path: (None, *y.values.shape[2:]) if isinstance(y, Ragged) else y.shape[1:] for path, y in found.items()
        }

    def read(self, features: Parts, dtype: Any) -> Any:
        """x from the named parts of rows: integers as int32, all else in the dtype of computation."""
        integers = self.integers
        parts = [features[name].astype(INTEGERS if name in integers else dtype) for name in self.input_shapes]
        return parts[0] if len(parts) == 1 else tuple(parts)

    def named(self, y: Any) -> Parts:
        """The arrays of y, or of dy, by the names of the outputs."""
        return dict(zip(self.output_names, (y,) if len(self.exits) == 1 else y, strict=True))

    def joined(self, parts: Parts) -> Any:
        """The inverse of `named`."""
        chosen = tuple(parts[name] for name in self.output_names)
        return chosen[0] if len(chosen) == 1 else chosen

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **super().to_json()}

    def output_shape(self, input_shape: Any = None) -> Any:
        """Shape of one row of y; by default for the network's own inputs."""
        return super().output_shape(self.row_shape(input_shape))

    def multiply_adds(self, input_shape: Any = None) -> int:
        return super().multiply_adds(self.row_shape(input_shape))

    def leaves(self, input_shape: Any = None) -> Iterator[Leaf]:
        return super().leaves(self.row_shape(input_shape))

    def init(self, key: Array | int, input_shape: Any = None) -> Weights:
        """Fresh weights, each layer's from a key of its own; `key` may be a seed.

        Raises
        ------
        ValueError
            `key` is neither a key of JAX nor an integer, or the shape of a row is known neither here nor there.
        """
        if is_integer(key):
            key = jax.random.key(int(key))
        elif not isinstance(key, (jax.Array, np.ndarray)):
            raise ValueError(f"key of init must be an integer, or a key of jax.random, received {key!r}.")
        return super().init(key, self.row_shape(input_shape))

    def initialized(self, weights: Weights, seed: int) -> Weights:
        """Fresh weights, but for the layers that `weights` has; see `started_from` of `transfer.py`."""
        return started_from(self.init(seed), weights)

    def frozen(self, *names: str, until: str | None = None) -> Self:
        """The same network with some layers' weights held fixed in training; every layer keeps its name.

        Parameters
        ----------
        *names : str
            Layers to freeze, such as "conv_0"; a network within the network is frozen as a whole, or in part by a path
            such as "body/conv_0".
        until : str, optional
            Freeze this layer, too, and all that it depends on. "layer3" is the last of "layer3_0", "layer3_1" and so
            on, as of `stepSizeFactors`, if there is no layer of that very name.

        Raises
        ------
        ValueError
            There is no such layer, or none is named.
        """
        if not names and until is None:
            raise ValueError('frozen expects names of layers or until=..., received neither; write frozen("conv_0").')
        self.check_paths(names)
        return self.frozen_at({*names, *(() if until is None else self._needed([self._last_of(until)]))})

    def check_weights(self, weights: Weights, input_shape: Any = None) -> None:
        """ValueError naming the first array that is missing, unknown or of another shape than this network's."""
        expected = dict(named_arrays(self.abstract_weights(input_shape)))
        received = dict(named_arrays(weights))
        for name in sorted(expected.keys() | received.keys()):
            want, have = (str(part[name].shape) if name in part else "nothing" for part in (expected, received))
            if want != have:
                raise ValueError(f"Weight {name!r}: the network has {want} there, the given weights have {have}.")

    def abstract_weights(self, input_shape: Any = None) -> Weights:
        """Shapes and dtypes in the structure of `init`, without computing anything."""
        return jax.eval_shape(_initialized, self, self.row_shape(input_shape), jax.ShapeDtypeStruct((2,), "uint32"))

    def to_mermaid(self, nested: bool = False) -> str:
        """A drawing of layers and shapes as text of Mermaid, which notebooks and code hosts show as a picture.

        Parameters
        ----------
        nested : bool, default False
            Whether layers made of layers, as networks and residual blocks are, are drawn by what is within, named by
            paths, in place of one box.
        """
        return mermaid(boxes(self, self.input_shapes, nested))

    def plot(self, path: str | os.PathLike[str] | None = None, nested: bool = False) -> Figure:
        """A drawing of layers and shapes as a matplotlib Figure; needs matplotlib, as of sparkdl-jax[plot].

        Parameters
        ----------
        path : str, optional
            Of a file to write it to, as PNG, PDF or SVG by its ending.
        nested : bool, default False
            Whether layers made of layers are drawn by what is within, as of `to_mermaid`.
        """
        drawing = figure(boxes(self, self.input_shapes, nested))
        if path is not None:
            drawing.savefig(path, dpi=120)
        return drawing

    def to_onnx(self, weights: Weights, opset: int = 17) -> ModelProto:
        """The network and its weights as a model of ONNX, for inference; needs onnx, as of sparkdl-jax[onnx].

        Inputs and outputs bear the network's names and have its shapes, with any number of rows ("batch"): numbers are
        float32, integers int64, images (batch, height, width, channels). An input of rows of any length is
        (batch, "time", ...), of one step at least, and has another one beside it, NAME_lengths, int64 (batch,); its
        padding may hold anything. What is random in training is left out. Columns of strings become integers before
        they get here, as workers look them up or hash them: the model takes these integers.

        Parameters
        ----------
        weights : dict of dict of arrays
            By layer and name, as of `init` or of a trained model.
        opset : int, default 17
            Version of the operators, 13 to 21: onnxruntime 1.8 reads 14, 1.12 reads 17, 1.17 reads 20.

        Returns
        -------
        onnx.ModelProto
            `interchange.save_onnx` writes one to a file.

        Raises
        ------
        ImportError
            The package onnx is missing.
        ValueError
            The weights are not those of the network, `opset` is out of range, or a layer cannot be written, as one
            whose class is a user's own; the message names it.

        Examples
        --------
        >>> from sparkdl import Network
        >>> from sparkdl.layers import Dense, Lstm
        >>> network = Network([Lstm(8), Dense(3)], input_shape=(None, 4))
        >>> model = network.to_onnx(network.init(0))
        >>> [part.name for part in model.graph.input], [part.name for part in model.graph.output]
        (['features', 'features_lengths'], ['label'])
        """
        from sparkdl.interchange.onnx_out.onnx_model import onnx_model  # not above: few ask for it

        self.check_weights(weights)
        return onnx_model(self, self.input_shapes, self.output_names, weights, opset)

    def _entered(self, x: Any) -> list[Any]:
        if isinstance(x, Mapping):
            names = list(self.input_shapes)
            if x.keys() != set(names):
                raise ValueError(f"x must have the inputs {', '.join(names)}, received {', '.join(map(str, x))}.")
            return [x[name] for name in names]
        return super()._entered(x)

    def _check_rows(self, weights: Weights, x: Any) -> None:
        if getattr(self, "input_shape", ()) is None:  # of a network within another, which checks what it is given
            return
        shapes, parts = self.input_shapes, self._entered(x)
        found = {name: row_shape_of(part, shapes[name]) for name, part in zip(shapes, parts, strict=True)}
        if found == shapes or self._serves(weights, found):
            return
        name, part = next((name, part) for name, part in zip(shapes, parts, strict=True) if found[name] != shapes[name])
        axes = ("batch", "steps") if is_ragged(shapes[name]) else ("batch",)
        wanted = ", ".join(map(str, (*axes, *step_shape(shapes[name]))))
        received = getattr(values_of(part), "shape", type(part).__name__)
        raise ValueError(f"x must be an array of shape ({wanted}) for input {name!r}, received {received}.")

    def _serves(self, weights: Weights, found: dict[str, Any]) -> bool:
        """Whether the weights take rows of the shapes found, too, of as many axes and channels: images of any size."""
        for name, shape in self.input_shapes.items():
            own = found[name]
            if own is None or len(own) != len(shape) or (own[-1:] != shape[-1:] and name not in self.integers):
                return False
        shapes = tuple(found.values())
        try:
            self.check_weights(weights, shapes[0] if len(shapes) == 1 else shapes)
        except (ArithmeticError, TypeError, ValueError):
            return False
        return True

    def _last_of(self, name: str) -> str:
        """The layer of that name, or the last that it stands for by its number."""
        found = [own for own in self.names if stands_for(name, own)]
        return found[-1] if found and name not in self.names else name

    def _needed(self, names: list[str]) -> set[str]:
        """These layers, and all that they depend on, be it for its weights alone.

        Raises
        ------
        ValueError
            There is no such layer.
        """
        for name in names:
            if name not in self.names:
                raise ValueError(f"The network has no layer {name!r}; its layers are {', '.join(self.names)}.")
        found = set(names)
        for child in reversed(self.children):
            if child.name in found:
                above = [self.names[source - self.entries] for source in child.sources if source >= self.entries]
                found.update(above)
                found.update([child.layer.shares] if child.layer.shares else [])
        return found

    def _summary(self, header: tuple[str, ...], before: list[tuple[str, ...]], cells: list[tuple[str, ...]]) -> str:
        """A table of layers: `cells` under `header`, output shape, number of weights and multiply-adds for one row."""
        shapes = self.shapes(self.row_shape(None))
        counts = {name: count_weights(weights) for name, weights in self.abstract_weights().items()}
        rows = [("", *header, "output shape", "weights", "multiply-adds"), *before]
        for index, (child, own) in enumerate(zip(self.children, cells, strict=True)):
            operations = child.layer.multiply_adds(own_shape(child, shapes))
            after, count = shapes[self.entries + index], counts.get(child.key, 0) if child in self.owners else 0
            texts = [text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..." for text in own]
            rows.append((str(index), *texts, str(after), f"{count:,}", f"{operations:,}"))
        blank = [""] * len(header)
        rows.append(("", "total", *blank, f"{sum(counts.values()):,}", f"{self.multiply_adds():,}"))
        columns = range(len(rows[0]))
        widths = [max(len(row[column]) for row in rows) for column in columns]
        right = (0, columns[-2], columns[-1])
        lines = [
            "  ".join(
                row[column].rjust(widths[column]) if column in right else row[column].ljust(widths[column])
                for column in columns
            ).rstrip()
            for row in rows
        ]
        rule = "-" * max(len(line) for line in lines)
        return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])
