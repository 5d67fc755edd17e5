"""Steps of layers that are not as long as the others', as of those that have learned before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import optax

from sparkdl.layer_paths import value_at


def with_factors(
    transformation: optax.GradientTransformation, factors: Mapping[str, float]
) -> optax.GradientTransformation:
    """The same, but what is to be added to a weight is multiplied by its factor, 1 where none is given.

    Steps are scaled, not gradients: a rule that divides by a gradient's size, as Adam's, would undo the latter.
    """

    def scaled(path: Any, change: Any) -> Any:
        factor = value_at(factors, "/".join(entry.key for entry in path), 1)
        return change if factor == 1 else change * factor

    def update(gradients: Any, state: Any, weights: Any = None) -> tuple[Any, Any]:
        changes, state = transformation.update(gradients, state, weights)
        return jax.tree.map_with_path(scaled, changes), state

    return optax.GradientTransformation(transformation.init, update)
