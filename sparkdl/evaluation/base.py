"""What evaluations have in common: results that are specs and print as tables, accumulators that travel as bytes."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypedDict

import numpy as np
import pandas as pd

from sparkdl.arrays import Array
from sparkdl.specs import Spec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUNDING = 1e-3  # by which a probability may be off


class EvaluationOptions(TypedDict, total=False):
    """Keyword arguments of a model's `evaluate`, as `ClassificationMeasures` takes them."""

    top_k: Sequence[int]
    bins: int
    exact_rows: int


@dataclass(frozen=True)
class Evaluation(Spec):
    """Base of results: immutable, equal by value, printed as a table, with a JSON form like every spec.

    Attributes
    ----------
    rows : int
        Rows that count: those of weight above 0.
    weight : float
        Sum of their weights.
    loss : float or None
        Mean over rows, by weight, of the loss that the network was trained with; None where it was not given.
    """

    rows: int
    weight: float
    loss: float | None

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.__repr__ = cls.__str__  # type: ignore[assignment,method-assign]  # curves would fill pages

    def __str__(self) -> str:
        head = "  ".join(
            f"{name} {value:,}" if isinstance(value, int) else f"{name} {value:.4f}"
            for name, value in self._overall().items()
            if value is not None
        )
        return f"{head}\n{self.to_pandas().to_string(float_format='{:.4f}'.format, na_rep='-')}"

    def _overall(self) -> dict[str, float | None]:
        """The measures of all rows together, by name, for the table's head."""
        raise NotImplementedError

    def to_pandas(self) -> pd.DataFrame:
        """The measures of each class, label or output, one a row, and their averages."""
        raise NotImplementedError

    def plot(self) -> Figure:
        """The measures drawn, as a matplotlib Figure."""
        raise NotImplementedError


class Overall(TypedDict):
    """The attributes of every `Evaluation`."""

    rows: int
    weight: float
    loss: float | None


class Accumulator(ABC):
    """Base of accumulators: sums over rows that are added to, merged in any order, and sent as bytes without pickle.

    A row that weighs 0 counts nothing. Counts do not depend on how the rows were parted at all; other sums only by the
    rounding of float64.
    """

    _kinds: ClassVar[dict[str, type[Accumulator]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Accumulator._kinds[cls.__name__] = cls

    def __init__(self, **options: Any) -> None:
        self._options = options

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Take in what another accumulator of the same options has seen; returns self."""

    @abstractmethod
    def result(self) -> Evaluation:
        """The measures of all rows seen; ValueError if there are none."""

    @abstractmethod
    def to_arrays(self) -> dict[str, Array]:
        """All that was summed, by name."""

    @abstractmethod
    def _restore(self, arrays: dict[str, Array]) -> None:
        """Become the accumulator that `to_arrays` described."""

    def to_bytes(self) -> bytes:
        """The accumulator as the bytes of an npz archive."""
        buffer = io.BytesIO()
        header = json.dumps({"kind": type(self).__name__} | self._options)
        np.savez(buffer, header=np.array(header), **self.to_arrays())  # type: ignore[arg-type]
        return buffer.getvalue()

    @staticmethod
    def from_bytes(data: bytes) -> Accumulator:
        """The accumulator, of whatever kind, that `to_bytes` wrote."""
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = dict(file)
        options = json.loads(str(arrays.pop("header")))
        made = Accumulator._kinds[options.pop("kind")](**options)
        made._restore(arrays)
        return made

    def _check_mergeable(self, other: Accumulator) -> None:
        if type(self) is not type(other) or self._options != other._options:
            raise ValueError(
                f"Only accumulators of one kind and equal options can be merged, received {type(self).__name__} of "
                f"{self._options} and {type(other).__name__} of {other._options}; make both with the same options."
            )


class SummingAccumulator(Accumulator):
    """Base of accumulators that hold sums, which are merged by adding them up."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._sums: dict[str, Array] = {}

    def _add(self, sums: dict[str, Array]) -> None:
        for name, value in sums.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else np.asarray(value)

    def to_arrays(self) -> dict[str, Array]:
        return dict(self._sums)

    def _restore(self, arrays: dict[str, Array]) -> None:
        self._sums = arrays

    def merge(self, other: Self) -> Self:
        self._check_mergeable(other)
        self._add(other._sums)
        return self


def totals(weights: Array, losses: Array | None) -> dict[str, Array]:
    """The sums that all evaluations have: rows, weight and loss, which is NaN if it is not given."""
    loss = np.float64(np.nan) if losses is None else weights @ np.asarray(losses, np.float64)
    return {"rows": np.asarray(len(weights)), "weight": np.asarray(weights.sum()), "loss": np.asarray(loss)}


def overall(sums: dict[str, Array]) -> Overall:
    """What all evaluations have, of `totals`; ValueError if there are no rows."""
    if "rows" not in sums:
        raise ValueError("There are no rows of positive weight to evaluate; check the data and its filters.")
    weight, loss = float(sums["weight"]), float(sums["loss"])
    return {"rows": int(sums["rows"]), "weight": weight, "loss": None if np.isnan(loss) else loss / weight}


def counted(weights: Array | None, rows: int, *columns: Array | None) -> tuple[Array, list[Array | None]]:
    """Weights as float64, and them and the columns without the rows of weight 0.

    Raises
    ------
    ValueError
        A column has another number of rows, or weights are not one a row, negative or not finite.
    """
    weights = np.ones(rows) if weights is None else np.asarray(weights, np.float64)
    if weights.ndim != 1:
        raise ValueError(f"Weights must have shape (n,), one a row, received {weights.shape}.")
    for column in (weights, *columns):
        if column is not None and len(column) != rows:
            raise ValueError(f"Scores have {rows} rows and what belongs to them {len(column)}; give one for each row.")
    wrong = weights[~(np.isfinite(weights) & (weights >= 0))]
    if len(wrong):
        raise ValueError(f"Weights must be finite and at least 0, received {wrong[0]:g}; correct such rows.")
    used = weights > 0
    return weights[used], [None if column is None else np.asarray(column)[used] for column in columns]


def require_finite(scores: Array) -> Array:
    """The scores in float64; ValueError for NaN or infinity."""
    if not np.isfinite(scores).all():
        raise ValueError(
            "The model's outputs must be finite to be evaluated, received NaN or infinity for some rows; "
            "its training has diverged: lower the step size, or clip gradients."
        )
    return scores.astype(np.float64)


def require_probabilities(scores: Array) -> None:
    """ValueError for scores that are none; what is off by rounding passes."""
    wrong = scores[(scores < -ROUNDING) | (scores > 1 + ROUNDING)]
    if len(wrong):
        raise ValueError(
            f"Scores must be probabilities, from 0 to 1, received {wrong[0]:g}; say probabilistic=False of other ones."
        )


def require_finite_labels(labels: Any) -> Array:
    """The labels in float64; ValueError for NaN or infinity."""
    labels = np.asarray(labels, np.float64)
    if not np.isfinite(labels).all():
        raise ValueError("Labels must be finite, received NaN or infinity; remove or replace such rows.")
    return labels
