"""What a run is told of some of its layers: factors of the step size, and for how many epochs they rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import jax

from sparkdl.layer_paths import check_names, value_at
from sparkdl.layers.composite import Composite
from sparkdl.network import BaseNetwork
from sparkdl.specs import Named, is_integer
from sparkdl.weights import named_arrays


def checked_factors(given: Any, network: BaseNetwork) -> Named:
    """Factors of the step size by name of layers or arrays of the network (see `stands_for`).

    Raises
    ------
    ValueError
        One is no finite number of at least 0, or stands for nothing that the network trains.
    """
    return _checked("step_factors", given, "finite numbers of at least 0", _is_factor, network, arrays=True)


def checked_rests(given: Any, network: BaseNetwork) -> Named:
    """For how many epochs layers rest, by their names.

    Raises
    ------
    ValueError
        One is no integer of at least 0, stands for no layer that the network trains, or for one that is frozen only
        with others.
    """
    rests = _checked("unfreeze_after", given, "numbers of epochs, integers of at least 0", _is_count, network)
    for epoch in {0, *rests.values()}:
        try:
            network_at(network, rests, epoch)
        except ValueError as error:
            raise ValueError(f"unfreeze_after cannot divide a layer: {error}") from None
    return rests


@lru_cache(16)
def network_at(network: BaseNetwork, rests: Mapping[str, int], epoch: int) -> BaseNetwork:
    """The network of an epoch, the first being 0: layers that rest in it are frozen."""
    resting, _ = _resting(network, rests, epoch)
    return network.frozen_at(resting) if resting else network


def begun_at(rests: Mapping[str, int] | None, epoch: int) -> Named | None:
    """Those of the layers that rest first, but no longer in that epoch; None of a run in which none ever rest."""
    return Named({name: epochs for name, epochs in rests.items() if 0 < epochs <= epoch}) if rests else None


def _resting(
    composite: Composite, rests: Mapping[str, int], epoch: int, path: str = "", key: str = ""
) -> tuple[list[str], bool]:
    """The shortest paths of all that rests within, and whether that is everything; `key` is the path of the weights."""
    found: list[str] = []
    every = True
    for child in composite.owners:
        own_path, own_key = path + child.name, key + child.key
        if isinstance(child.layer, Composite):
            inner, whole = _resting(child.layer, rests, epoch, f"{own_path}/", f"{own_key}/")
        else:
            inner, whole = [], value_at(rests, own_key, 0) > epoch
        found += [own_path] if whole else inner
        every = every and whole
    return found, every


def _checked(
    field: str, given: Any, what: str, fits: Callable[[Any], bool], network: BaseNetwork, arrays: bool = False
) -> Named:
    listed = isinstance(given, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in given)  # of JSON
    pairs = Named(given) if listed or isinstance(given, Mapping) else None
    if pairs is None or not all(isinstance(name, str) and fits(value) for name, value in pairs.items()):
        raise ValueError(f"{field} must be a dict of {what}, by name of a layer, received {given!r}.")
    learned = network.learned(jax.eval_shape(lambda: network.init(0)))
    paths = dict[str, None]()
    for path, _ in named_arrays(learned):
        names = path.split("/")
        paths |= dict.fromkeys("/".join(names[:depth]) for depth in range(1, len(names) + arrays))
    check_names(field, pairs, paths)
    return pairs


def _is_factor(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def _is_count(value: Any) -> bool:
    return is_integer(value, 0)
