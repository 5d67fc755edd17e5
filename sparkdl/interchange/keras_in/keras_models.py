"""A model of Keras as a network, and each layer of it as layers of ours, be it a model or a layer around another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from sparkdl.interchange.keras_in.calls import Call
from sparkdl.interchange.keras_in.described import GRAPHS, Described, described
from sparkdl.interchange.keras_in.functional import functional
from sparkdl.interchange.keras_in.keras_operations import operation
from sparkdl.interchange.keras_in.kinds import HEED_MASKS, KINDS
from sparkdl.interchange.keras_in.layer_config import LayerConfig
from sparkdl.interchange.keras_in.part import Part
from sparkdl.interchange.keras_in.sequential import sequential
from sparkdl.layers import EachStep
from sparkdl.layers.base import Shape
from sparkdl.layers.ragged import is_ragged

UNCALLED = Call([], {}, {})


class _Reading(NamedTuple):
    """How a model is read: which Keras wrote it, whether masks are heeded, and whether there are any that are."""

    version: int
    masks: bool
    masked: bool


def converted(model: Any, version: int, masks: bool = True) -> Part:
    """A whole model: a Network or a Graph, and its variables.

    Parameters
    ----------
    model : dict
        As Keras serializes it.
    version : int
        Of that Keras.
    masks : bool, default True
        Whether steps that it marks as padding are left out.

    Raises
    ------
    ValueError
        A layer or one of its options has no counterpart here; the message names it.
    """
    found = described(model)
    if found.kind != "Sequential" and found.kind not in GRAPHS:
        raise ValueError(
            f"The model is a {found.kind}, of a class of its own whose code would have to run; build it as a "
            "Sequential or functional model of Keras's layers and save that."
        )
    return _convert(_Reading(version, masks, masks and _has_masks(model)), found, [], (), UNCALLED)


def _has_masks(model: Any) -> bool:
    """Whether a layer in the configuration of a model marks steps as padding."""
    if isinstance(model, list):
        return any(map(_has_masks, model))
    if not isinstance(model, dict):
        return False
    return model.get("class_name") == "Masking" or model.get("mask_zero") is True or _has_masks([*model.values()])


def _convert(reading: _Reading, layer: Described, shapes: Sequence[Shape], sources: Sequence[str], call: Call) -> Part:
    """A layer, which the sentence on what is wrong with it names."""
    own = partial(_convert, reading)
    if layer.kind == "Sequential" and not layer.operation:
        part = sequential(layer.options, lambda one, shape: own(one, [shape], ("",), UNCALLED), *shapes)
    elif layer.kind in GRAPHS and not layer.operation:
        part = functional(layer.options, own, reading.version, reading.masks)
    else:
        read = layer.options, reading.version, call.options, tuple(sources), reading.masked
        config = LayerConfig(layer.kind, layer.name, *read)
        if reading.masked and any(map(is_ragged, shapes)) and (layer.operation or layer.kind not in HEED_MASKS):
            raise ValueError(
                f"Layer {layer.name!r} ({layer.kind}) heeds no mask in Keras, while here the steps that are masked are "
                "left out before it; put a layer in its place that heeds masks, or load the model by masks=False for "
                "rows that have no padding."
            )
        try:
            part = operation(config, call, shapes) if layer.operation else _of_kind(config, shapes, reading)
            config.check_read()
        except ValueError as error:
            if repr(layer.name) in str(error):
                raise
            raise ValueError(f"Layer {layer.name!r} ({layer.kind}): {error}") from None
    return layer.fixed(part)


def _of_kind(config: LayerConfig, shapes: Sequence[Shape], reading: _Reading) -> Part:
    if config.kind in KINDS:
        return KINDS[config.kind](config, shapes)
    if config.kind != "TimeDistributed":
        raise ValueError(
            f"Layer {config.name!r} is a {config.kind}, which has no counterpart here; put layers in its place that "
            "have one, and save the model again."
        )
    inner = described(config.get("layer"))
    part = _convert(reading, inner, [shapes[0][1:]], config.sources, UNCALLED)
    if not part.layers:
        return part
    first, *others = part.layers
    variables = tuple(variable.within("layer", "layer") for variable in part.variables)
    return Part((EachStep([replace(first, name="layer"), *others]),), variables)
