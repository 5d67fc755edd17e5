"""Networks for the columns that a DataFrame has: how many categories, which means and variances, found in one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sparkdl.arrays import INTEGERS
from sparkdl.decoding.names import quoted
from sparkdl.graph import FORBIDDEN, Graph
from sparkdl.layers import Embedding, HashedEmbedding, Normalization
from sparkdl.models.categories import NUMBERS, dlrm, embedded, vector_size, wide_and_deep
from sparkdl.models.feature_tokens import ft_transformer
from sparkdl.models.perceptrons import mlp, tabular_resnet

Builder = Callable[..., Graph]
BUILDERS: dict[str, Builder] = {
    "wide_and_deep": wide_and_deep,
    "dlrm": dlrm,
    "mlp": lambda categories, numbers, outputs, **options: embedded(categories, numbers, mlp((1,), outputs, **options)),
    "tabular_resnet": lambda categories, numbers, outputs, **options: embedded(
        categories, numbers, tabular_resnet((1,), outputs, **options)
    ),
    "ft_transformer": ft_transformer,
}
WHOLE = ("tinyint", "smallint", "int", "bigint", "boolean")
MOST_CATEGORY = np.iinfo(INTEGERS).max - 1  # the row after it is that of unknown ones
SPARE, LEAST = 4, 4096  # rows of a table for each of its strings, and at least, so that few share one


class Tabular(NamedTuple):
    """A network for columns of a DataFrame.

    Attributes
    ----------
    network : Graph
    columns : dict
        By input of the network one column or a list of them: `featuresCols` for an estimator.
    """

    network: Graph
    columns: dict[str, str | list[str]]


def tabular(
    dataset: Any,
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
    outputs: int = 1,
    network: str = "wide_and_deep",
    **options: Any,
) -> Tabular:
    """A network for columns of a DataFrame, and the `featuresCols` that fit it; one Spark job learns what it must know.

    Numbers are normalized by their means and variances, which the network's weights hold. A column of strings is hashed
    to a table of four rows for each of its values, 4,096 at least, so that few share one. A column of whole numbers, as
    StringIndexer makes them, has an Embedding with a row for values that it has not seen.

    Parameters
    ----------
    dataset : DataFrame
        The rows to train on.
    categorical, numeric : sequence of str
        Names of columns: strings or whole numbers, and numbers.
    outputs : int, default 1
        Classes, or numbers to predict.
    network : {"wide_and_deep", "mlp", "tabular_resnet", "dlrm", "ft_transformer"}, default "wide_and_deep"
    **options
        Of the function of that name.

    Returns
    -------
    Tabular
        (network, columns)

    Raises
    ------
    ValueError
        A column is missing, of another type, or holds nothing that can be used; or there is no such network.
    """
    if network not in BUILDERS:
        raise ValueError(f"network must be one of {', '.join(BUILDERS)}, received {network!r}.")
    _check_columns(dataset, categorical, numeric)
    types = dict(dataset.dtypes)
    asked = {f"n{index}": _numbers_of(name) for index, name in enumerate(numeric)}
    asked |= {f"c{index}": _categories_of(name, types[name]) for index, name in enumerate(categorical)}
    found = _aggregated(dataset, asked)
    alike = BUILDERS[network]({"a": 2}, Normalization((0.0,), (1.0,)), outputs=1)  # whose nodes have the same names
    inputs = _input_names(categorical, alike.nodes)
    tables = {
        inputs[name]: _table(name, types[name], _known(dataset, name), found[f"c{index}"])
        for index, name in enumerate(categorical)
    }
    if "crosses" in options:
        options["crosses"] = [[inputs.get(name, name) for name in cross] for cross in options["crosses"]]
    numbers = [found[f"n{index}"] for index in range(len(numeric))]
    normalized = _normalized(list(numeric), numbers) if numeric else 0
    columns: dict[str, str | list[str]] = {inputs[name]: name for name in categorical}
    columns |= {NUMBERS: list(numeric)} if numeric else {}
    return Tabular(BUILDERS[network](tables, normalized, outputs=outputs, **options), columns)


def normalization(dataset: Any, columns: Sequence[str]) -> Normalization:
    """The layer that gives columns of numbers mean 0 and variance 1; one Spark job learns these.

    Parameters
    ----------
    dataset : DataFrame
        The rows to train on; nulls and NaN do not count.
    columns : sequence of str
        Names of columns of numbers, in the order in which the network reads them.

    Raises
    ------
    ValueError
        A column is missing, holds no numbers, or infinite ones.
    """
    _check_columns(dataset, (), columns)
    found = _aggregated(dataset, {f"n{index}": _numbers_of(name) for index, name in enumerate(columns)})
    return _normalized(list(columns), [found[f"n{index}"] for index in range(len(columns))])


def _check_columns(dataset: Any, categorical: Sequence[str], numeric: Sequence[str]) -> None:
    types = dict(dataset.dtypes)
    if not [*categorical, *numeric]:
        raise ValueError("categorical and numeric must name at least one column, received none.")
    for which, names in (("categorical", categorical), ("numeric", numeric)):
        for name in names:
            if name not in types:
                raise ValueError(
                    f"{which} names column {name!r}, which is not there; the columns are {', '.join(types)}."
                )
            kind = types[name]
            number = kind in (*WHOLE, "float", "double") or kind.startswith("decimal")
            if not number and not (which == "categorical" and kind == "string"):
                wanted = "strings or whole numbers" if which == "categorical" else "numbers"
                raise ValueError(f"{which} must name columns of {wanted}, received {name!r} of type {kind}.")


def _numbers_of(name: str) -> list[str]:
    number = _number(name)
    return [f"avg({number})", f"var_pop({number})"]


def _categories_of(name: str, kind: str) -> list[str]:
    if kind == "string":
        return [f"approx_count_distinct({quoted(name)})"]
    number = _number(name)
    return [f"min({number})", f"max({number})", f"max({number} % 1 <> 0)"]


def _number(name: str) -> str:
    """What a column holds, null in place of NaN, lest it count."""
    return f"nullif(cast({quoted(name)} as double), double('NaN'))"


def _aggregated(dataset: Any, asked: dict[str, list[str]]) -> dict[str, list[Any]]:
    """What each list of aggregate expressions gives, in one pass."""
    expressions = [expression for own in asked.values() for expression in own]
    row = iter(dataset.selectExpr(*(f"{each} as a{index}" for index, each in enumerate(expressions))).first())
    return {name: [next(row) for _ in own] for name, own in asked.items()}


def _known(dataset: Any, name: str) -> int:
    """How many categories the column's own metadata name, as StringIndexer leaves them; 0 if it names none."""
    return len(dataset.schema[name].metadata.get("ml_attr", {}).get("vals", ()))


def _table(name: str, kind: str, known: int, found: list[Any]) -> Embedding:
    if kind == "string":
        count = max(1, found[0])
        rows = max(LEAST, 2 ** math.ceil(math.log2(SPARE * count)))
        return HashedEmbedding(rows, vector_size(count))
    if known:
        return Embedding(known, vector_size(known), unknown=True)
    least, most, fractions = found
    if most is None or fractions:
        infinite = most is not None and not (math.isfinite(least) and math.isfinite(most))
        what = "nothing but nulls" if most is None else "infinite ones" if infinite else "fractions"
        raise ValueError(f"categorical column {name!r} must hold whole numbers, received {what}; index it.")
    if least < 0:
        raise ValueError(f"categorical column {name!r} must hold numbers from 0, received {least:.15g}; index it.")
    if most > MOST_CATEGORY:
        raise ValueError(
            f"categorical column {name!r} must hold numbers that {INTEGERS} holds, received {most:.15g}; index it, or "
            "cast it to string, to be hashed."
        )
    rows = int(most) + 1
    return Embedding(rows, vector_size(rows), unknown=True)


def _normalized(names: list[str], found: list[list[Any]]) -> Normalization:
    for name, own in zip(names, found, strict=True):
        if any(value is None or not math.isfinite(value) for value in own):
            raise ValueError(
                f"numeric column {name!r} must hold finite numbers, received "
                f"{'nothing but nulls' if own[0] is None else 'infinite ones'}; clean or leave it out."
            )
        variance, held = own[1], np.finfo(np.float32)
        if variance > float(held.max) or 0 < variance < float(held.tiny):  # to be divided by infinity, or by nothing
            raise ValueError(
                f"numeric column {name!r} must hold numbers whose variance float32 holds, received {variance:.3g}; "
                "scale it."
            )
    return Normalization(tuple(own[0] for own in found), tuple(own[1] for own in found))


def _input_names(columns: Sequence[str], nodes: Iterable[str]) -> dict[str, str]:
    """By column the name of its input: its own without what that may not hold, and unlike all others in the graph."""
    found: dict[str, str] = {}
    for column in dict.fromkeys(columns):
        name = "".join("_" if character in FORBIDDEN else character for character in column)
        while name in (NUMBERS, *nodes, *found.values()):
            name += "_"
        found[column] = name
    return found
