"""What lies within attention, before it is a layer: products of queries and keys, and what is made of these."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_in.assembly import Assembly
from sparkdl.interchange.onnx_in.folding import check_whole, once
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.views import Group, Part, Value, size_of

SCORES = "the product of two computed arrays"
SHARES = "the softmax of a product of two computed arrays"
TAKEN = "what steps take of one another"
NOTHING = -1e4  # a score that is as good as none


class Asked(NamedTuple):
    """What is known of attention so far.

    Attributes
    ----------
    queries, keys, values : Value
        Of theirs the last two axes are steps and numbers, those before rows and heads.
    factor : float
        By which the products are multiplied.
    causal : bool
        Whether a step asks only itself and those before it.
    dropout : float
        The rate at which, in training, what steps take is dropped.
    """

    queries: Value
    keys: Value
    values: Value | None = None
    factor: float = 1.0
    causal: bool = False
    dropout: float = 0.0


def product_of_values(build: Assembly, operator: Operator, one: Value, other: Value) -> Value:
    """The product of two arrays that are computed, which attention alone has."""
    if len(one.theirs) != len(other.theirs) or len(one.theirs) < 3:
        raise Refused(f"its node {operator.name!r} (MatMul) multiplies two computed arrays, other than attention does")
    if shares := build.unfinished(one, SHARES):
        asked: Asked = shares.told["asked"]
        theirs = (*one.theirs[:-1], other.theirs[-1])
        return build.leave(operator, TAKEN, [one, other], theirs, asked=asked._replace(values=other))
    steps = other.theirs[-1]
    own = (Part(size_of(steps), any_length=any(part.any_length for part in steps)),)  # apart from those of the queries
    keys = other.transposed((*range(len(other.theirs) - 2), len(other.theirs) - 1, len(other.theirs) - 2))
    return build.leave(operator, SCORES, [one, other], (*one.theirs[:-1], own), asked=Asked(one, keys))


def scores_scaled(build: Assembly, operator: Operator, x: Value, numbers: Array) -> Value | None:
    """Scores times a number; None if x is none of them."""
    scores = build.unfinished(x, SCORES)
    if scores is None or numbers.size != 1:
        return None
    asked: Asked = scores.told["asked"]
    asked = asked._replace(factor=asked.factor * float(numbers.item()))
    return build.leave(operator, SCORES, scores.values, x.theirs, asked=asked)


def mask_added(build: Assembly, operator: Operator, x: Value, mask: Array) -> Value | None:
    """Scores with a constant added, which takes nothing away or all steps that are later; None if x is none of them."""
    if build.unfinished(x, SCORES) is None:
        return None
    return hidden(build, operator, x, mask <= NOTHING, not np.any(mask[mask > NOTHING]))


def hidden(build: Assembly, operator: Operator, x: Value, gone: Array, rest: bool = True) -> Value:
    """Scores of which those are gone that a constant says, while the rest stays as it is."""
    scores = build.unfinished(x, SCORES)
    assert scores is not None
    asked: Asked = scores.told["asked"]
    if np.any(gone):
        later = np.triu(np.ones(gone.shape[-2:], bool), 1)
        for_all = gone.ndim < 2 or gone.shape[-2] == 1 < size_of(x.theirs[-2])  # queries alike
        if for_all or not np.array_equal(gone, np.broadcast_to(later, gone.shape)):
            rest = False
        asked = asked._replace(causal=True)
    if not rest:
        raise Refused(f"its node {operator.name!r} ({operator.kind}) masks attention otherwise than to earlier steps")
    return build.leave(operator, SCORES, scores.values, x.theirs, asked=asked)


def where(build: Assembly, operator: Operator, condition: Array, one: Value | Array, other: Value | Array) -> Value:
    """Where, by a constant, of scores."""
    known = isinstance(condition, np.ndarray) and isinstance(one, Value) != isinstance(other, Value)
    scores, number = (one, other) if isinstance(one, Value) else (other, one)
    if not known or not build.unfinished(scores, SCORES) or np.any(once(number) > NOTHING):  # type: ignore[arg-type, operator]
        raise Refused(f"its node {operator.name!r} (Where) chooses between numbers, other than attention does")
    assert isinstance(scores, Value)
    condition = check_whole(once(condition, kept=2))
    return hidden(build, operator, scores, ~condition if scores is one else condition)


def softmax_of_scores(build: Assembly, operator: Operator, x: Value, group: Group) -> Value | None:
    """What each step takes of others; None if x is no scores."""
    scores = build.unfinished(x, SCORES)
    if scores is None or group != x.theirs[-1]:
        return None
    return build.leave(operator, SHARES, scores.values, x.theirs, asked=scores.told["asked"])


def shares_dropped(build: Assembly, operator: Operator, x: Value, rate: float) -> Value | None:
    """What each step takes of others, some of it dropped in training; None if x is nothing of attention."""
    if (shares := build.unfinished(x, SHARES)) is None:
        return None
    asked: Asked = shares.told["asked"]
    return build.leave(operator, SHARES, shares.values, x.theirs, asked=asked._replace(dropout=rate))


OPERATORS = {"Where": where}
