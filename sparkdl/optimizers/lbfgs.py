"""L-BFGS: steps that know the curvature, each as long as a line search finds it should be."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from sparkdl.optimizers.optimizer import Optimizer
from sparkdl.specs import check_integers

DECREASE, CURVATURE = 1e-4, 0.9  # of Wolfe's two conditions, as Nocedal and Wright give them for quasi-Newton methods


class Search(NamedTuple):
    """Where a line search stands.

    Attributes
    ----------
    memory : optax.ScaleByLBFGSState
        `params` are the weights that the search starts from, `updates` the gradient there.
    direction : nested dict of arrays
    value, slope : Array
        The objective there, infinite before it is known, and its derivative along the direction.
    length : Array
        How far along the direction to look next.
    least, most : Array
        Lengths known to be too short and too long.
    looks : Array, int32
        Points of this search that were looked at.
    found : Array, bool
        Whether the last point ended a step.
    stuck : Array, bool
        Whether no length along the gradient itself was any good: then the weights stay.
    """

    memory: Any
    direction: Any
    value: Array
    slope: Array
    length: Array
    least: Array
    most: Array
    looks: Array
    found: Array
    stuck: Array


@dataclass(frozen=True)
class LBFGS(Optimizer):
    """Limited-memory BFGS with a line search (Liu & Nocedal 1989; Nocedal & Wright 2006, algorithm 7.5).

    Every step takes all rows, so that an epoch is one step, however large the batches are said to be. It looks at
    points along H * g, where H is the inverse Hessian as the last steps and the changes of the gradient tell it, until
    one fulfils the weak Wolfe conditions (Lewis & Overton 2013, algorithm 2.6); each look is a pass over the rows, and
    one is mostly enough. The first looks along g itself, at the step size; later ones begin at a length of 1.

    It is meant for small networks on rows that fit in memory; MLlib's networks train by it. Random layers, as Dropout,
    draw the same numbers in every step. Where no length is any good, down to what the dtype can tell apart, the weights
    stay.

    It trains with the exchange AllReduce, and takes no decay, clipping or schedule: use the layers' own `l2`.

    Parameters
    ----------
    memory : int, default 10
        Steps that H is made of, of which each keeps two numbers a weight.
    looks : int, default 20
        At most so many points along a direction.
    """

    memory: int = 10
    looks: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "memory", "looks")
        for field in fields(Optimizer):
            value = getattr(self, field.name)
            if value != field.default:
                raise ValueError(
                    f"{field.name} of LBFGS must be left out, since its line search follows the gradient as it is, "
                    f"received {value!r}; a layer's own l2 pulls its weights to 0."
                )

    def first_state(self, weights: Any, **given: Any) -> Search:
        """The search from weights at which nothing is known; `point` and `looked` take the steps, not an update."""
        real = jax.tree.leaves(weights)[0].dtype
        memory = self._rule().init(weights)._replace(params=weights)
        memory = memory._replace(weights_memory=memory.weights_memory.astype(real))
        none, far = jnp.zeros((), real), jnp.full((), jnp.inf, real)
        no, start = jnp.zeros((), bool), jax.tree.map(jnp.zeros_like, weights)
        return Search(memory, start, far, none, none, none, far, jnp.zeros((), jnp.int32), no, no)

    def point(self, search: Search) -> Any:
        """The weights to look at next."""
        return optax.tree.add_scale(search.memory.params, search.length, search.direction)

    def looked(self, search: Search, value: Array, gradient: Any, step_size: Array) -> Search:
        """The search after the objective and its gradient at `point`; see `Search.found`.

        Parameters
        ----------
        search : Search
        value : Array
            Mean over all rows; NaN where the gradient is not finite.
        gradient : nested dict of arrays
        step_size : Array
            The length to begin with along a gradient of which nothing else is known.
        """
        slope = optax.tree.vdot(gradient, search.direction)
        too_long = ~(value <= search.value + DECREASE * search.length * search.slope)  # as where it is no number
        too_short = slope < CURVATURE * search.slope
        looks = search.looks + 1

        def accept() -> Search:
            return self._accepted(search, value, gradient, step_size)

        def go_on() -> Search:
            least = jnp.where(too_long, search.least, search.length)
            most = jnp.where(too_long, search.length, search.most)
            length = jnp.where(jnp.isfinite(most), (least + most) / 2, 2 * least)
            return search._replace(length=length, least=least, most=most, looks=looks, found=jnp.zeros((), bool))

        def give_up() -> Search:
            fresh = self.first_state(search.memory.params)
            return fresh._replace(stuck=search.memory.count <= 1)

        def stay() -> Search:
            return search._replace(found=jnp.ones((), bool))

        refused = jnp.where(looks < self.looks, 1, 2)
        branch = jnp.where(search.stuck, 3, jnp.where(too_long | too_short, refused, 0))
        return jax.lax.switch(branch, [accept, go_on, give_up, stay])  # type: ignore[no-any-return]

    def _accepted(self, search: Search, value: Array, gradient: Any, step_size: Array) -> Search:
        """The search that the next step begins with, from the point just looked at."""
        first = search.memory.count == 0
        with jax.numpy_dtype_promotion("standard"):
            step, memory = self._rule().update(gradient, search.memory, self.point(search))
        down = jax.tree.map(lambda full, own: jnp.where(first, -own, -full).astype(own.dtype), step, gradient)
        nothing = jnp.zeros_like(value)
        return Search(
            memory=jax.tree.map(lambda new, old: new.astype(old.dtype), memory, search.memory),
            direction=down,
            value=value,
            slope=optax.tree.vdot(gradient, down),
            length=jnp.where(first, step_size, 1).astype(value.dtype),
            least=nothing,
            most=jnp.full_like(value, jnp.inf),
            looks=jnp.zeros((), jnp.int32),
            found=~first,
            stuck=search.stuck,
        )

    def _rule(self) -> optax.GradientTransformation:
        return optax.scale_by_lbfgs(self.memory)
