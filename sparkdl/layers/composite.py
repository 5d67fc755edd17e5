"""Layers made of layers: which child reads what, and from that their weights, their passes and their names."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp

from sparkdl.layers import steps
from sparkdl.layers.base import Array, CannotCarry, Context, Layer, Shape, Weights, jitted
from sparkdl.layers.factored import added
from sparkdl.layers.ragged import cast, is_ragged, reads_ragged, values_of
from sparkdl.places import place_of
from sparkdl.weights import named_arrays, updated


class Child(NamedTuple):
    """A child of a composite, and what it reads.

    Attributes
    ----------
    name : str
        Its path and, unless it shares another's, the key of its weights.
    layer : Layer
    sources : tuple of int
        Indices into the arrays of the composite's x followed by what earlier children put out: in a composite that
        reads one array, 0 is x and `i + 1` is of child `i`. Several arrive as a tuple.
    shared : str
        The name under which its weights are those of other children too, of the same layer or of one that uses the same
        arrays; "" if they are its own.
    """

    name: str
    layer: Layer
    sources: tuple[int, ...]
    shared: str = ""

    @property
    def key(self) -> str:
        """Of its weights among those of the composite."""
        return self.shared or self.name


class Leaf(NamedTuple):
    """A layer that is not made of layers: its path, and the shapes of a row before and after it."""

    path: str
    layer: Layer
    before: Any
    after: Shape


@dataclass(frozen=True)
class Composite(Layer):
    """A layer made of layers; a subclass says by `children` of which, and what the last of them puts out is y.

    weights  {name of the child: its weights} for the children that have weights

    A frozen composite (trainable=False) holds frozen layers, so `children` hands `trainable` on. One that reads several
    arrays, `entries` of them, is given a tuple as x; one with several `exits` puts out a tuple.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        slashed = [name for name in self.names if "/" in name]
        if slashed:
            raise ValueError(f"Layer names may not hold a slash, received {slashed[0]!r}.")
        doubled = sorted({name for name in self.names if self.names.count(name) > 1})
        if doubled:
            raise ValueError(f"Layer names must differ within a network, {doubled[0]!r} stands twice.")
        for child in self.children:
            if isinstance(child.layer, Composite) and len(child.layer.exits) > 1:
                raise ValueError(
                    f"Layer {child.name!r} has {len(child.layer.exits)} outputs, but within a network one is read; cut "
                    "it by up_to, or make its layers those of the network."
                )
            if isinstance(child.layer, Composite) and child.layer.entries != len(child.sources):
                raise ValueError(
                    f"Layer {child.name!r}, a {type(child.layer).__name__}, reads {child.layer.entries} inputs, "
                    f"received {len(child.sources)}; make it a node of a Graph, with as many sources."
                )
            if child.layer.shares and child.shared != child.layer.shares:
                raise ValueError(
                    f"Layer {child.name!r} is to share the weights of {child.layer.shares!r}, which a "
                    f"{type(self).__name__} does not have beside it; make both layers of one Network, or of one Graph."
                )
        integers = [index in self.integer_entries for index in range(self.entries)]
        for child in self.children:
            for source, wanted in zip(child.sources, _integers_read(child), strict=True):
                if wanted and not integers[source]:
                    raise ValueError(
                        f"Layer {child.name!r} reads integers, which only a network's input holds, or a layer that "
                        "gives some; have it read the input, and no layer beside it that reads other numbers."
                    )
                if integers[source] and not wanted:
                    raise ValueError(
                        f"Layer {child.name!r} reads the integers of {self.names[source - self.entries]!r}, but takes "
                        "other numbers; put a layer that takes integers between them."
                    )
            integers.append(child.layer.gives_integers)

    @property
    @abstractmethod
    def children(self) -> tuple[Child, ...]:
        """The children in the order of computation."""

    @cached_property
    def owners(self) -> tuple[Child, ...]:
        """The children, but of those that share weights the first."""
        return tuple({child.key: child for child in reversed(self.children)}.values())[::-1]

    @property
    def entries(self) -> int:
        """The number of arrays that x consists of."""
        return 1

    @property
    def exits(self) -> tuple[int, ...]:
        """Which values, counted as `Child.sources` are, y consists of."""
        return (self.entries + len(self.children) - 1,)

    @cached_property
    def named_readers(self) -> tuple[list[tuple[str, Layer]], ...]:
        """For each of x's arrays (path of the weights, layer) of those that read it, which are no composites."""
        found: tuple[list[tuple[str, Layer]], ...] = tuple([] for _ in range(self.entries))
        for child in self.children:
            for source, readers in zip(child.sources, _readers(child), strict=True):
                if source < self.entries:
                    found[source].extend(readers)
        return found

    @cached_property
    def readers(self) -> tuple[list[Layer], ...]:
        """For each of x's arrays the layers that read it."""
        return tuple([layer for _, layer in readers] for readers in self.named_readers)

    @cached_property
    def integer_entries(self) -> frozenset[int]:
        """Those of x's arrays that all of their readers take as integers."""
        every = enumerate(self.readers)
        return frozenset(index for index, layers in every if layers and all(each.takes_integers for each in layers))

    @property
    def takes_ragged(self) -> bool:
        return True  # unless its layers refuse it

    @property
    def takes_integers(self) -> bool:
        return len(self.integer_entries) == self.entries

    @property
    def gives_integers(self) -> bool:
        return any(self.children[index - self.entries].layer.gives_integers for index in self.exits)

    @property
    def gives_lengths(self) -> bool:
        return any(child.layer.gives_lengths for child in self.children)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The children's names, in order."""
        return tuple(child.name for child in self.children)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The children's names, those of composites followed by the paths within: "block_1", "block_1/conv_0"."""
        nested = (
            (child.name, child.layer.paths if isinstance(child.layer, Composite) else ()) for child in self.children
        )
        return tuple(path for name, inner in nested for path in (name, *(f"{name}/{below}" for below in inner)))

    def check_paths(self, paths: Collection[str]) -> None:
        """ValueError naming the first of `paths` that leads to none of the layers."""
        unknown = sorted(set(paths) - set(self.paths))
        if unknown:
            raise ValueError(f"The network has no layer {unknown[0]!r}; its layers are {', '.join(self.paths)}.")

    def shapes(self, input_shape: Any) -> list[Any]:
        """Shapes of a row of every array of x and of what every child puts out."""
        return self.shapes_and_lengths(input_shape)[0]

    def shapes_and_lengths(self, input_shape: Any) -> tuple[list[Any], list[int]]:
        """`shapes`, and for every one of them the first value whose rows are as long, where these are of any length.

        Values are counted as `Child.sources` are: of x's arrays, unless a child gives lengths of its own.
        """
        shapes = self._entered(input_shape)
        lengths_of = list(range(len(shapes)))
        for index, child in enumerate(self.children):
            subject, read = self._subject(index), read_by(child, shapes)
            ragged = [source for source in child.sources if is_ragged(shapes[source])]
            own = child.layer.gives_lengths
            lengths_of.append(len(lengths_of) if own else lengths_of[(ragged or child.sources)[0]])
            try:
                several = len({lengths_of[source] for source in ragged}) > 1
                if several and not child.layer.takes_several_lengths:
                    raise ValueError(
                        f"{type(child.layer).__name__} expects rows of the same lengths, received those of several "
                        f"inputs or maskings, {read}; put LastStep, TimeMean or TimeMax behind each."
                    )
                shapes.append(steps.output_shape(child.layer, read))
                self._check_shared(child, shapes)
            except ValueError as error:
                raise ValueError(f"{subject}: {error}{place_of(error)}") from None
            except Exception as error:  # of a user's own forward
                raise ValueError(f"{subject}: {type(error).__name__}: {error}{place_of(error)}") from error
        return shapes, lengths_of

    def leaves(self, input_shape: Any) -> Iterator[Leaf]:
        """Every layer at the bottom, in the order of computation."""
        shapes = self.shapes(input_shape)
        for child, after in zip(self.children, shapes[self.entries :], strict=True):
            before = read_by(child, shapes)
            if isinstance(child.layer, Composite):
                for leaf in child.layer.leaves(before):
                    yield leaf._replace(path=f"{child.name}/{leaf.path}")
            else:
                yield Leaf(child.name, child.layer, before, after)

    def output_shape(self, input_shape: Any) -> Any:
        return self._left(self.shapes(input_shape))

    def multiply_adds(self, input_shape: Any) -> int:
        shapes = self.shapes(input_shape)
        return sum(child.layer.multiply_adds(own_shape(child, shapes)) for child in self.children)

    def init(self, key: Array, input_shape: Any) -> Weights:
        """Fresh weights, each child's from a key of its own."""
        shapes = self.shapes(input_shape)
        own = {
            child.key: child.layer.init(jax.random.fold_in(key, index), own_shape(child, shapes))
            for index, child in enumerate(self.children)
            if child in self.owners
        }
        weights = {key: weights for key, weights in own.items() if weights}
        if not self.trainable and (learns := self.learned(weights)):
            raise ValueError(
                f"Children of {type(self).__name__}(trainable=False) must be frozen with it, but "
                f"{next(iter(learns))!r} learns; have `children` give its layers trainable=self.trainable."
            )
        return weights

    @jitted
    def forward(self, weights: Weights, x: Any) -> Any:
        self._check_rows(weights, x)
        values = self._entered(x)
        for child in self.children:
            y = steps.forward(child.layer, weights.get(child.key, {}), read_by(child, values))
            values.append(_in_dtype(y, child, weights))
        return self._left(values)

    def first_state(self, rows: int, input_shape: Any, dtype: Any = float, longest: int | None = None) -> Any:
        """By name, of the children that read rows of any length and carry something; the others are not in it."""
        shapes, found = self.shapes(input_shape), {}
        for index, child in enumerate(self.children):
            read = read_by(child, shapes)
            try:
                state = child.layer.first_state(rows, read, dtype, longest) if reads_ragged(read) else {}
            except CannotCarry as error:
                raise CannotCarry(f"{self._subject(index)}: {error}") from None
            if jax.tree.leaves(state):
                found[child.name] = state
        return found

    @jitted
    def forward_from(self, weights: Weights, state: Any, x: Any) -> tuple[Any, Any]:
        self._check_rows(weights, x)
        values, after = self._entered(x), {}
        for child in self.children:
            own, read = weights.get(child.key, {}), read_by(child, values)
            if child.name in state:
                y, after[child.name] = child.layer.forward_from(own, state[child.name], read)
            else:
                y = _in_dtype(steps.forward(child.layer, own, read), child, weights)
            values.append(y)
        return self._left(values), after

    def activations(self, weights: Weights, x: Any, paths: Collection[str]) -> tuple[Any, dict[str, Array]]:
        """y, and what the layers of these `paths` put out on the way; ValueError if one is none of the network's."""
        self.check_paths(paths)
        self._check_rows(weights, x)
        values, found = self._entered(x), dict[str, Array]()
        for child in self.children:
            inner = [path.removeprefix(f"{child.name}/") for path in paths if path.startswith(f"{child.name}/")]
            own, read = weights.get(child.key, {}), read_by(child, values)
            if isinstance(child.layer, Composite) and inner:
                y, below = child.layer.activations(own, read, inner)
                found |= {f"{child.name}/{path}": value for path, value in below.items()}
            else:
                y = _in_dtype(steps.forward(child.layer, own, read), child, weights)
            values.append(y)
            if child.name in paths:
                found[child.name] = y
        return self._left(values), found

    def train_forward(self, weights: Weights, x: Any, context: Context) -> tuple[Any, Any]:
        values, kept = self._entered(x), []
        for index, child in enumerate(self.children):
            read = read_by(child, values)
            own_context = context.at(index, child.name)
            y, own = steps.train_forward(child.layer, weights.get(child.key, {}), read, own_context)
            y = _in_dtype(y, child, weights)
            values.append(y)
            kept.append((read, y, own))
        return self._left(values), kept

    def train_outputs(self, kept: Any) -> Iterator[tuple[str, Array]]:
        """(path, y) of every layer at the bottom, from what `train_forward` kept."""
        for child, (_, y, own) in zip(self.children, kept, strict=True):
            if isinstance(child.layer, Composite):
                for path, value in child.layer.train_outputs(own):
                    yield f"{child.name}/{path}", value
            else:
                yield child.name, y

    def train_delta(self, weights: Weights, x: Any, y: Any, dy: Any, kept: Any, context: Context) -> Any:
        return self.train_backward(weights, x, y, dy, kept, context, True)[0]

    def train_gradient(self, weights: Weights, x: Any, y: Any, dy: Any, kept: Any, context: Context) -> Weights:
        return self.train_backward(weights, x, y, dy, kept, context, False)[1]

    def train_backward(
        self, weights: Weights, x: Any, y: Any, dy: Any, kept: Any, context: Context, wants_delta: bool
    ) -> tuple[Any, Weights]:
        """Up through the children. One with nothing learned at or below it is passed over; what several read gets the
        sum of their deltas, in the order of the children, that of an output first. Integers have no delta: None."""
        learned, first = self.learned(weights), self.entries
        wanted = [wants_delta and index not in self.integer_entries for index in range(first)]
        for child in self.children:
            varies = child.key in learned or any(wanted[source] for source in child.sources)
            wanted.append(varies and not child.layer.gives_integers)
        own_deltas: list[list[Any]] = [[] for _ in wanted]
        for index, part in zip(self.exits, dy if len(self.exits) > 1 else (dy,), strict=True):
            own_deltas[index].append(part)
        deltas: list[list[Any]] = [[] for _ in wanted]
        gradient: Weights = {}
        for index in reversed(range(len(self.children))):
            arrived = [*own_deltas[first + index], *deltas[first + index]]
            if not wanted[first + index] or not arrived:
                continue
            child, (read, written, own_kept) = self.children[index], kept[index]
            below, own = steps.train_backward(
                child.layer,
                weights.get(child.key, {}),
                read,
                written,
                _sum(arrived),
                own_kept,
                context.at(index, child.name),
                any(wanted[source] for source in child.sources),
            )
            if child.key in learned and own:
                gradient[child.key] = added(gradient[child.key], own) if child.key in gradient else own
            parts = below if len(child.sources) > 1 and below is not None else (below,)
            for source, part in reversed(list(zip(child.sources, parts, strict=False))):
                if wanted[source]:
                    deltas[source].insert(0, part)
        still = {key: part for key, part in learned.items() if key not in gradient}  # of which nothing varies
        gradient |= jax.tree.map(jnp.zeros_like, still)
        if not wants_delta:
            return None, gradient
        dx = [
            (_sum(deltas[index]) if deltas[index] else jnp.zeros_like(values_of(array))) if wanted[index] else None
            for index, array in enumerate(self._entered(x))
        ]
        return dx[0] if first == 1 else tuple(dx), gradient

    def learned(self, weights: Weights) -> Weights:
        parts = ((child.key, child.layer.learned(weights[child.key])) for child in self._weighty(weights))
        return {key: part for key, part in parts if part}

    def penalty(self, weights: Weights) -> Array | float:
        return sum(child.layer.penalty(weights[child.key]) for child in self._weighty(weights))

    def constrained(self, weights: Weights) -> Weights:
        return {child.key: child.layer.constrained(weights[child.key]) for child in self._weighty(weights)}

    def new_statistics(self, weights: Weights, kept: Any) -> Weights:
        """Of children that share weights, each goes on from what the one before it made of them."""
        found: Weights = {}
        for child, (_, _, own_kept) in zip(self.children, kept, strict=True):
            before = weights.get(child.key, {})
            if child.key in found:
                before = updated(before, found[child.key])
            if values := child.layer.new_statistics(before, own_kept):
                found[child.key] = values
        return found

    def new_state(self, state: Any, kept: Any) -> Any:
        found = {child.name: (child.layer, own) for child, (_, _, own) in zip(self.children, kept, strict=True)}
        return {name: found[name][0].new_state(before, found[name][1]) for name, before in state.items()}

    def replaced(self, layers: Mapping[str, Layer]) -> Self:
        """The same with other layers in place of some children, by name; the names stay.

        Raises
        ------
        ValueError
            This kind of composite cannot.
        """
        raise ValueError(f"Layers within a {type(self).__name__} cannot be replaced; name the whole of it.")

    def frozen_at(self, paths: Collection[str]) -> Self:
        """The same with the weights of the layers of these paths held fixed in training."""
        changed = {}
        for child in self.children:
            inner = [path.removeprefix(f"{child.name}/") for path in paths if path.startswith(f"{child.name}/")]
            if child.name in paths:
                changed[child.name] = replace(child.layer, trainable=False)
            elif inner:
                assert isinstance(child.layer, Composite)
                changed[child.name] = child.layer.frozen_at(inner)
        return self.replaced(changed) if changed else self

    def _check_shared(self, child: Child, shapes: Sequence[Any]) -> None:
        """ValueError if a child uses arrays of another layer that are not there, or of other shapes."""
        owner = next((other for other in self.children if child.shared and other.key == child.key), child)
        if owner is child or (not child.layer.shares and own_shape(child, shapes) == own_shape(owner, shapes)):
            return
        own, there = (
            {path: array.shape for path, array in named_arrays(jax.eval_shape(partial(_initial, each, shapes)))}
            for each in (child, owner)
        )
        if own != there:
            raise ValueError(
                f"{type(child.layer).__name__} is to share {child.key!r}, and expects {own} there, received {there}; "
                "give both the same sizes."
            )

    def _weighty(self, weights: Weights) -> Iterator[Child]:
        return (child for child in self.owners if child.key in weights)

    def _entered(self, x: Any) -> list[Any]:
        """What x, or a row's shape, consists of."""
        if self.entries == 1:
            return [x]
        if not isinstance(x, tuple) or len(x) != self.entries or isinstance(x[0], int):
            received = jax.tree.map(lambda part: getattr(part, "shape", part), x)
            raise ValueError(
                f"{type(self).__name__} reads {self.entries} inputs, received {received}; give it a tuple of as many."
            )
        return list(x)

    def _check_rows(self, weights: Weights, x: Any) -> None:
        """ValueError if x cannot be what `forward` reads; only a network knows its rows."""

    def _left(self, values: Sequence[Any]) -> Any:
        """What of the values is y."""
        chosen = tuple(values[index] for index in self.exits)
        return chosen[0] if len(chosen) == 1 else chosen

    def _subject(self, index: int) -> str:
        """How an error calls a child."""
        return f"{self.names[index]} ({type(self.children[index].layer).__name__})"


def read_by(child: Child, values: Sequence[Any]) -> Any:
    """What a child reads of the values, or their shapes: of x and of what the children before it put out."""
    sources = child.sources
    return values[sources[0]] if len(sources) == 1 else tuple(values[source] for source in sources)


def own_shape(child: Child, shapes: Sequence[Any]) -> Any:
    """The shape of the rows that a child's own functions are given: of those of any length perhaps that of a step."""
    return steps.shape_of_step(child.layer, read_by(child, shapes))


def _in_dtype(y: Any, child: Child, weights: Weights) -> Any:
    """What a child without weights makes of integers, as OneHot does, in the dtype of the weights beside it."""
    if not weights or child.key in weights or not child.layer.takes_integers or child.layer.gives_integers:
        return y
    return cast(y, jax.tree.leaves(weights)[0].dtype)


def _initial(child: Child, shapes: Sequence[Any]) -> Weights:
    return child.layer.init(jax.random.key(0), own_shape(child, shapes))


def _readers(child: Child) -> Sequence[list[tuple[str, Layer]]]:
    """For each of the child's sources (path of its weights, layer) of those that read it."""
    if not isinstance(child.layer, Composite):
        return [[(child.key, child.layer)]] * len(child.sources)
    return [[(f"{child.key}/{path}", layer) for path, layer in readers] for readers in child.layer.named_readers]


def _integers_read(child: Child) -> list[bool]:
    """Whether the child reads each of its sources as integers."""
    return [bool(readers) and all(layer.takes_integers for _, layer in readers) for readers in _readers(child)]


def _sum(parts: Sequence[Any]) -> Any:
    first, *others = parts
    for other in others:
        first = jax.tree.map(lambda a, b: a + b, first, other)
    return first
