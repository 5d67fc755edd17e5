"""Whether layers and losses of a user's own give what training takes from them; found by tracing them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax

from sparkdl.arrays import INTEGERS
from sparkdl.base_network import BaseNetwork
from sparkdl.layers.base import Context, Layer, Shape, map_shapes
from sparkdl.layers.ragged import Ragged, abstract_rows, values_of
from sparkdl.layers.steps import shape_of_step
from sparkdl.losses import Loss
from sparkdl.places import place_of
from sparkdl.weights import named_arrays

ROWS = 7  # a number that is seldom the size of anything else
KEY = jax.ShapeDtypeStruct((2,), "uint32")


def check_layers(network: BaseNetwork) -> None:
    """Refuse a layer of a user's own whose kernels fail, or give arrays of other shapes than their arguments have.

    Raises
    ------
    ValueError
        The message names the layer, the kernel, and the shapes expected and received.
    """
    for path, layer, before, after in network.leaves():
        if not layer.is_packaged():
            step = shape_of_step(layer, before)
            own_after = after if step is before else after[1:]
            _check_layer(f"Layer {path!r} ({type(layer).__name__})", layer, step, own_after)


def _check_layer(subject: str, layer: Layer, before: Any, after: Shape) -> None:
    def step(key: Any, x: Any, row_weights: Any) -> dict[str, Any]:
        weights, context = layer.init(key, before), Context(key, row_weights)
        if not isinstance(weights, dict):
            raise TypeError(f"init must give a dict of arrays by name, received {weights!r}")
        y, kept = layer.train_forward(weights, x, context)
        dx, dweights = layer.train_backward(weights, x, y, values_of(y), kept, context, not layer.takes_integers)
        found = {"weights": layer.learned(weights), "forward": layer.forward(weights, x), "training": y}
        return found | {"delta": dx, "gradient": dweights}

    dtype = INTEGERS if layer.takes_integers else "float32"
    rows_before = map_shapes(lambda shape: abstract_rows(ROWS, shape, dtype), before)
    found = _traced(subject, step, KEY, rows_before, _floats())
    kernels = [("forward", "forward", after), ("forward", "training", after), ("delta", "delta", before)]
    for kernel, given, rows in kernels[: 2 if layer.takes_integers else 3]:  # nothing varies with integers
        expected = map_shapes(lambda row: _shape_of(abstract_rows(ROWS, row, dtype)), rows)
        _check_shape(f"{kernel} of {subject}", expected, found[given])
    if not isinstance(found["gradient"], dict):
        raise ValueError(f"gradient of {subject} must give a dict of arrays, received {found['gradient']!r}.")
    gradient = dict(named_arrays(found["gradient"]))
    for name, weight in named_arrays(found["weights"]):
        _check_shape(f"gradient of {subject}", weight.shape, gradient.get(name), f" for its weight {name!r}")


def check_loss(loss: Loss, output_shape: Shape) -> None:
    """Refuse a loss of a user's own that fails, or does not give one number a row.

    Raises
    ------
    ValueError
        The message names the loss, the method, and the shapes expected and received.
    """
    if loss.is_packaged():
        return
    rows = _floats(*output_shape)
    classes = loss.takes_classes and math.prod(output_shape) > 1
    taken = loss.labels_a_row(output_shape)
    numbers = rows if taken == math.prod(output_shape) else _floats(taken)
    labels = jax.ShapeDtypeStruct((ROWS,), "int32") if classes else numbers
    calls: dict[str, tuple[Callable[[Any, Any], Any], Shape]] = {
        "losses": (lambda outputs, labels: loss.losses(outputs, loss.targets(outputs, labels)), (ROWS,)),
        "slopes": (lambda outputs, labels: loss.slopes(outputs, loss.targets(outputs, labels)), rows.shape),
        "metrics": (loss.metrics, (ROWS,)),
        "predict": (lambda outputs, _: loss.predict(outputs), rows.shape),
    }
    for name, (call, expected) in calls.items():
        subject = f"{name} of {type(loss).__name__}"
        _check_shape(subject, expected, _traced(subject, call, rows, labels))


def _floats(*row: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((ROWS, *row), "float32")


def _traced(subject: str, function: Any, *arguments: Any) -> Any:
    try:
        return jax.eval_shape(function, *arguments)
    except Exception as error:
        raise ValueError(
            f"{subject} fails for {ROWS} rows: {type(error).__name__}: {error}{place_of(error)}; mend the class."
        ) from error


def _check_shape(subject: str, expected: Shape, found: Any, which: str = "") -> None:
    shape = tuple(map(_shape_of, found)) if isinstance(found, tuple) else _shape_of(found)
    if shape != expected:
        received = "nothing" if found is None else repr(found) if shape is None else str(shape)
        raise ValueError(
            f"{subject} must give an array of shape {expected}{which} when it is given {ROWS} rows, "
            f"received {received}; mend the class."
        )


def _shape_of(found: Any) -> Any:
    """That of an array, or of the values of rows of any length with a length each; None of anything else."""
    if isinstance(found, Ragged) and getattr(found.lengths, "shape", None) != (ROWS,):
        return None
    return getattr(values_of(found), "shape", None)
