"""Decides, from plain values, which columns a model of each kind adds and what they are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from sparkdl.layers.base import Shape
from sparkdl.layers.ragged import is_ragged, step_shape
from sparkdl.losses import Loss
from sparkdl.network import BaseNetwork
from sparkdl.objective import Objective
from sparkdl.scoring.heads import (
    Head,
    Heads,
    classes,
    every_output,
    every_prediction,
    first_output,
    first_prediction,
    probabilities,
    raw_scores,
)


@dataclass(frozen=True)
class Outputs:
    """What a model's Params say of the columns that it adds.

    Attributes
    ----------
    network : BaseNetwork
    objective : Objective
        Without losses for a part of a model.
    prediction, raw_prediction, probability : str
        Names of columns, as predictionCol has them; "" for none.
    predictions, probabilities : dict of str
        The same by output of a network with several, where a name is not the default.
    thresholds : tuple of float or None
        One a class.
    """

    network: BaseNetwork
    objective: Objective
    prediction: str
    raw_prediction: str = ""
    probability: str = ""
    predictions: Mapping[str, str] = field(default_factory=dict)
    probabilities: Mapping[str, str] = field(default_factory=dict)
    thresholds: tuple[float, ...] | None = None


def heads_of(kind: str, outputs: Outputs) -> Heads:
    """What the columns of a model are made of, by their names; that of one left out is "".

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    outputs : Outputs

    Raises
    ------
    ValueError
        A classifier has no loss or thresholds that do not fit, or columns are named of what is no output, or of an
        output whose loss has no probabilities.
    """
    return dict(named_heads(kind, outputs))


def named_heads(kind: str, outputs: Outputs) -> list[tuple[str, Head]]:
    """As `heads_of`, with every column that is asked for, were two of one name; for errors see there."""
    return KINDS[kind](outputs)


def heads_of_several(outputs: Outputs) -> list[tuple[str, Head]]:
    """Those of a network with several outputs: each one's prediction and, if it has them, probabilities.

    Every column that is asked for is there, were two of one name.

    Raises
    ------
    ValueError
        Columns are named of what is no output, or of an output whose loss has no probabilities.
    """
    given = {"prediction": outputs.predictions, "probability": outputs.probabilities}
    shapes = outputs.network.output_shapes
    able: dict[str, list[str]] = {"prediction": list(shapes), "probability": []}
    heads: list[tuple[str, Head]] = []
    for name, shape in shapes.items():
        loss = outputs.objective.losses.get(name)
        if loss and loss.takes_classes:
            own = {"prediction": Head(partial(classes, thresholds=None), name)}
        elif math.prod(step_shape(shape)) > 1:
            own = {"prediction": Head(every_prediction, name, True)}
        else:
            own = {"prediction": Head(first_prediction, name)}
        if loss and loss.takes_classes and loss.gives_probabilities:
            own["probability"] = Head(probabilities, name, True)
            able["probability"].append(name)
        heads += [(given[kind].get(name, f"{kind}_{name}"), head) for kind, head in own.items()]
    for kind, named in given.items():
        for name in named.keys() - set(able[kind]):
            raise ValueError(
                f"{kind}Cols names {name!r}; the outputs that have a {kind} are {', '.join(map(repr, able[kind]))}."
            )
    return heads


def check_thresholds(thresholds: tuple[float, ...], count: int, loss: Loss) -> None:
    """ValueError unless there is one threshold for each of `count` classes, and the loss gives probabilities."""
    if not loss.gives_probabilities:
        raise ValueError(f"thresholds need probabilities, which {type(loss).__name__} does not give; leave them unset.")
    if len(thresholds) != count:
        raise ValueError(f"thresholds must hold one number a class, {count} of them, received {len(thresholds)}.")
    if min(thresholds) < 0 or sum(threshold == 0 for threshold in thresholds) > 1:
        raise ValueError(f"thresholds must be at least 0 with at most one 0 among them, received {list(thresholds)}.")


def count_classes(network: BaseNetwork) -> int:
    """How many classes the only output of a network tells apart."""
    return max(2, step_shape(network.output_shape())[0])


def by_step(network: BaseNetwork, activations: Mapping[str, Shape]) -> tuple[str, ...]:
    """The outputs, and the paths of activations, that are something for each step of rows of any length.

    Parameters
    ----------
    network : BaseNetwork
    activations : dict of tuple of int
        As of `network.path_shapes`.
    """
    return (*network.step_outputs, *sorted(path for path, shape in activations.items() if is_ragged(shape)))


def widths(network: BaseNetwork, heads: Heads, activations: Mapping[str, Shape]) -> dict[str, int]:
    """How many numbers the lists of each column hold: those of a row, or of a step of rows of any length.

    Parameters
    ----------
    network : BaseNetwork
    heads : dict of Head
        By name of the column.
    activations : dict of tuple of int
        Shapes as of `network.path_shapes`, by name of the column.
    """
    zeros = {name: np.zeros((1, math.prod(step_shape(shape)))) for name, shape in network.output_shapes.items()}
    lists = {name: head for name, head in heads.items() if head.is_list}
    found = {name: head.function(zeros[head.output], zeros[head.output]).shape[1] for name, head in lists.items()}
    return found | {name: math.prod(step_shape(shape)) for name, shape in activations.items()}


def _of_any_loss(outputs: Outputs) -> list[tuple[str, Head]]:
    shapes = outputs.network.output_shapes
    if len(shapes) > 1:
        return heads_of_several(outputs)
    ((name, shape),) = shapes.items()
    several = math.prod(step_shape(shape)) > 1
    return [(outputs.prediction, Head(every_output if several else first_output, name, several))]


def _of_featurizer(outputs: Outputs) -> list[tuple[str, Head]]:
    shapes = outputs.network.output_shapes
    if len(shapes) > 1:
        return heads_of_several(outputs)
    (name,) = shapes
    return [(outputs.prediction, Head(every_output, name, True))]


def _of_classifier(outputs: Outputs) -> list[tuple[str, Head]]:
    if not outputs.objective.losses:
        raise ValueError(
            "loss of DeepClassificationModel is not set, by which classes are told; set it to the one of training."
        )
    ((output, loss),) = outputs.objective.losses.items()
    thresholds = outputs.thresholds
    if thresholds is not None:
        check_thresholds(thresholds, count_classes(outputs.network), loss)
    heads = [(outputs.raw_prediction, Head(raw_scores, output, True))]
    if loss.gives_probabilities:
        heads.append((outputs.probability, Head(probabilities, output, True)))
    return [*heads, (outputs.prediction, Head(partial(classes, thresholds=thresholds), output))]


def _of_regressor(outputs: Outputs) -> list[tuple[str, Head]]:
    ((output, shape),) = outputs.network.output_shapes.items()
    several = math.prod(step_shape(shape)) > 1
    return [(outputs.prediction, Head(every_prediction if several else first_prediction, output, several))]


# By the name of the model's class.
KINDS: dict[str, Callable[[Outputs], list[tuple[str, Head]]]] = {
    "DeepModel": _of_any_loss,
    "DeepClassificationModel": _of_classifier,
    "DeepRegressionModel": _of_regressor,
    "Featurizer": _of_featurizer,
}
