"""What all optimizers share: decay, clipping, the schedule.

Every optimizer counts its own steps and keeps its state in a plain tree of arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import optax

from sparkdl import norms
from sparkdl.layer_paths import value_at
from sparkdl.schedules import ConstantSchedule, Schedule
from sparkdl.specs import Spec, check_range


@dataclass(frozen=True)
class Optimizer(Spec):
    """An update rule with what every rule can be combined with.

    A step is w -= step_size * factor * (rule(clipped gradient) + weight_decay * w), where `factor` is the schedule's.
    Subclasses write `rule`. One whose rule moves every element by what that element has seen alone, from a first state
    that depends on shapes only, says so by `by_element = True`: workers may then divide the weights between them.

    Parameters
    ----------
    schedule : Schedule or str, default ConstantSchedule()
        Factor on the step size.
    weight_decay : float, default 0
        Decoupled decay of every weight, biases too (Loshchilov & Hutter 2019). A layer's own l2 is not decoupled.
    no_decay : sequence of str, default ()
        What `weight_decay` leaves alone: names of weights such as "bias", "scale" or an Embedding's "table", names of
        layers, or paths such as "block_1/conv_0".
    normalize : "layer" or "array", optional
        Divide the gradient of each layer, or of each array, by its Euclidean norm, as Deeplearning4j's
        RenormalizeL2PerLayer and RenormalizeL2PerParamType do; a gradient of 0 stays.
    clip_value : float, optional
        Bound on each element of the gradient. Clippings that are given apply in the order listed here, after
        `normalize`.
    clip_array_norm : float, optional
        Bound on the Euclidean norm of each array's gradient, Keras's clipnorm.
    clip_layer_norm : float, optional
        Bound on the Euclidean norm of each layer's gradient; a layer is an innermost dict of arrays.
    clip_norm : float, optional
        Bound on the Euclidean norm of the whole gradient.
    """

    schedule: Schedule | str = field(default=ConstantSchedule(), kw_only=True)
    weight_decay: float = field(default=0.0, kw_only=True)
    no_decay: Sequence[str] = field(default=(), kw_only=True)
    normalize: str | None = field(default=None, kw_only=True)
    clip_value: float | None = field(default=None, kw_only=True)
    clip_array_norm: float | None = field(default=None, kw_only=True)
    clip_layer_norm: float | None = field(default=None, kw_only=True)
    clip_norm: float | None = field(default=None, kw_only=True)

    by_element: ClassVar[bool] = False
    rests: ClassVar[bool] = False  # whether the rule, where a gradient was and is 0, moves nothing and keeps its state
    is_linear: ClassVar[bool] = False  # whether it keeps no state, and moves by a multiple of the gradient

    @property
    def is_lazy(self) -> bool:
        """Whether rows of a table that have no gradient are to rest, which the formula would move."""
        return False

    @property
    def moves_named_rows(self) -> bool:
        """Whether of a large table only those rows need be moved that have a gradient."""
        return self.is_lazy or (self.says("rests") and not self.weight_decay)

    @property
    def adds_up(self) -> bool:
        """Whether the step of a sum of gradients is the sum of their steps, whatever the weights are."""
        return self.says("is_linear") and not (
            self.weight_decay
            or self.normalize
            or self.clip_value
            or self.clip_array_norm
            or self.clip_layer_norm
            or self.clip_norm
        )

    @classmethod
    def says(cls, what: str) -> bool:
        """Whether the class says so of its rule, itself or where it has the rule from."""
        for one in cls.__mro__:
            if what in vars(one):
                return bool(vars(one)[what])
            if {"rule", "decayed_rule", "transformation"} & vars(one).keys():
                return False
        return False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "schedule", Schedule.of(self.schedule))
        check_range(self, "[0, inf)", "weight_decay")
        check_range(self, "(0, inf)", "clip_value", "clip_array_norm", "clip_layer_norm", "clip_norm")
        if self.normalize not in (None, "layer", "array"):
            raise ValueError(
                f'normalize of {type(self).__name__} must be "layer", "array" or None, received {self.normalize!r}.'
            )
        if not isinstance(self.no_decay, tuple) or not all(isinstance(name, str) for name in self.no_decay):
            raise ValueError(
                f"no_decay of {type(self).__name__} must be a list of names of weights or layers, received "
                f"{self.no_decay!r}."
            )

    def transformation(
        self,
        step_size: Any,
        total_steps: int,
        steps_per_epoch: int,
        weight_decay: Any = None,
        axis: str | None = None,
        begun: Mapping[str, int] | None = None,
    ) -> optax.GradientTransformation:
        """The optimizer for one run.

        Parameters
        ----------
        step_size : float or Array
            Step size (learning rate) where the schedule's factor is 1.
        total_steps, steps_per_epoch : int
            Steps of the whole run and of one pass over the data, for the schedule.
        weight_decay : Array, optional
            Instead of the field's, for a program that serves several values.
        axis : str, optional
            The mesh axis of workers of whom each holds a part of every array, for norms of the whole.
        begun : mapping, optional
            By name (see `stands_for` of `layer_paths.py`), layers that began later than others, and when; {} if more
            are to come. Those of each time have a state of the rule to themselves, which counts their own steps.

        Returns
        -------
        optax.GradientTransformation
            Its `update` needs the weights, and returns what is to be added to them.

        Raises
        ------
        ValueError
            `step_size` is not a positive number.
        """
        if not isinstance(step_size, jax.Array) and not 0 < step_size < float("inf"):
            raise ValueError(
                f"The step size must be a positive number, received {step_size!r}; 0.001 is a usual start."
            )
        factors = Schedule.of(self.schedule).factors(total_steps, steps_per_epoch)
        steps = optax.scale_by_schedule(lambda count: -step_size * factors(count))
        decay = self.weight_decay if weight_decay is None else weight_decay
        rule = self.decayed_rule(decay) if begun is None else self._by_beginning(decay, begun)
        chain = optax.chain(*self._clipping(axis), rule, *self._scaling(axis), steps)
        informed = optax.with_extra_args_support(chain)
        run = {"total_steps": total_steps, "steps_per_epoch": steps_per_epoch}  # for a rule with a schedule of its own

        def update(gradients: Any, state: Any, weights: Any = None) -> tuple[Any, Any]:
            with jax.numpy_dtype_promotion("standard"):  # optax raises floats to the power of its integer step count
                return informed.update(gradients, state, weights, **run)

        return optax.GradientTransformation(chain.init, update)

    def first_state(self, weights: Any, **given: Any) -> Any:
        """What it keeps before the first step from these weights; `given` are further arguments of `transformation`."""
        return self.transformation(1.0, 1, 1, **given).init(weights)

    def looks_ahead(self) -> bool:
        """Whether a step may depend on the length of the run, which schedules know."""
        return Schedule.of(self.schedule).looks_ahead()

    def rule(self) -> optax.GradientTransformation:
        """The bare update rule, for a step size of 1 and before the change of sign.

        If its `update` takes further arguments, as one of optax may, these are `total_steps` and `steps_per_epoch`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no rule.")

    def decayed_rule(self, weight_decay: Any) -> optax.GradientTransformation:
        """The update rule and the weight decay."""
        decays = (lambda weights: jax.tree.map_with_path(self._decays, weights)) if self.no_decay else None
        return optax.chain(self.rule(), optax.add_decayed_weights(weight_decay, decays))

    def check(self, weights: Any) -> None:
        """ValueError if `no_decay` names what is not among the weights, a nested dict of arrays."""
        known = {name for path, _ in jax.tree.leaves_with_path(weights) for name in _names_of(path)}
        unknown = sorted(set(self.no_decay) - known)
        if unknown:
            raise ValueError(
                f"no_decay of {type(self).__name__} names {unknown[0]!r}, but the network trains no weights of that "
                f"name or layer; there are {', '.join(sorted(known))}."
            )

    def _by_beginning(self, decay: Any, begun: Mapping[str, int]) -> optax.GradientTransformation:
        """The rule, with a state for the layers of every time that `begun` gives, and of 0 for all others."""

        def times(tree: Any) -> Any:
            return jax.tree.map_with_path(
                lambda path, _: value_at(begun, "/".join(entry.key for entry in path), 0), tree
            )

        return optax.partition({time: self.decayed_rule(decay) for time in {0, *begun.values()}}, times)

    def _decays(self, path: Any, weight: Any) -> bool:
        return not _names_of(path) & set(self.no_decay)

    def _clipping(self, axis: str | None) -> list[optax.GradientTransformation]:
        clips = []
        if self.normalize is not None:
            clips.append(norms.normalize_layers(axis) if self.normalize == "layer" else norms.normalize_arrays(axis))
        if self.clip_value is not None:
            clips.append(optax.clip(self.clip_value))
        if self.clip_array_norm is not None:
            clips.append(norms.clip_array_norms(self.clip_array_norm, axis))
        if self.clip_layer_norm is not None:
            clips.append(norms.clip_layer_norms(self.clip_layer_norm, axis))
        if self.clip_norm is not None:
            clips.append(norms.clip_norm(self.clip_norm, axis))
        return clips

    def _scaling(self, axis: str | None) -> list[optax.GradientTransformation]:
        return []


def _names_of(path: Any) -> set[str]:
    """What a weight is called: every name on its path, and the paths of the layers around it."""
    names = [entry.key for entry in path]
    return {*names, *("/".join(names[:depth]) for depth in range(2, len(names) + 1))}
