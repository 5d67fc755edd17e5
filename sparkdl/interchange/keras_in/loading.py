"""From a file of Keras to a network and its weights."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.base_network import BaseNetwork
from sparkdl.interchange.imported import Imported
from sparkdl.interchange.keras_in.hdf5 import Damaged
from sparkdl.interchange.keras_in.keras_file import KerasFile, open_keras
from sparkdl.interchange.keras_in.keras_models import converted
from sparkdl.interchange.weight_files import constants
from sparkdl.layers import Normalization
from sparkdl.layers.base import Layer, Weights
from sparkdl.layers.composite import Composite
from sparkdl.weights import named_arrays, nested_weights


def load_keras(path: str | os.PathLike[str], *, masks: bool = True) -> Imported:
    """The network and the weights of a model that Keras saved, which need not be installed.

    Reads what `model.save` of Keras 3 writes as `.keras`, and as Keras 2 did as `.h5`; needs h5py, as of
    sparkdl-jax[keras]. Sequential and functional models of the layers that have a counterpart here become a `Network`,
    or, if they branch, a `Graph`, whose outputs are Keras's. Layers keep their names, but for characters that paths
    cannot hold. What was given as `activation=` follows as a layer of its own, as "dense_relu" after "dense".

    Losses here want raw scores: of a model that ends in a softmax or sigmoid take what stands before that, by the name
    of Keras's layer, as `network.up_to("predictions")` ends before "predictions_softmax". Its weights are in those that
    are given here.

    How a model was trained does not come along: optimizer, loss, penalties, constraints and initializers. Layers with
    `trainable=False` are frozen here, too. In which precision it computed is left to `computeDtype`.

    Parameters
    ----------
    path : str or path
    masks : bool, default True
        Whether steps are left out that a Masking or an `Embedding(mask_zero=True)` marks as padding, as Keras's layers
        do. False reads the model as if it marked none: for rows without padding, which then may have a label for each
        step.

    Returns
    -------
    Imported
        `network` and `weights`, which are what `initialModel` of the estimators and `initial` of `training.fit` start
        from; floats of half precision as float32.

    Raises
    ------
    ImportError
        The package h5py is missing.
    OSError
        The file is not there or cannot be read.
    ValueError
        It is no such file, or is damaged; it holds links, or arrays larger than what the file has of them; or a layer,
        or one of its options, has no counterpart: a sentence with its name. Nothing of a file is run, so that `Lambda`
        and classes of a user's own are refused.

    Notes
    -----
    Links, files elsewhere, plug-ins and sizes that are not there are refused before HDF5 follows them. The rest is
    read by its library, which h5py brings, and which damaged bytes can still crash, and the process with it: load
    `.h5` files of sources that you trust. A `.keras` file has checksums, which find what was damaged by chance.

    Examples
    --------
    >>> from sparkdl.interchange import load_keras
    >>> network, weights = load_keras("resnet50.keras")  # doctest: +SKIP
    >>> scores = network.up_to("predictions")  # doctest: +SKIP
    """
    name = os.fspath(path)
    try:
        with open_keras(name) as file:
            (network,), variables, _ = converted(file.config, file.version, masks)
            assert isinstance(network, BaseNetwork)
            if loose := [name for name, follows in network.step_outputs.items() if not follows]:
                raise ValueError(
                    f"Output {loose[0]!r} of the network is for each step, while those that are masked are left out; "
                    "load it by masks=False for rows that have no padding."
                )
            weights = _weights(network, file, variables)
    except Damaged as wrong:
        raise ValueError(
            f"{name!r} cannot be read as a model of Keras: {wrong}; take it anew or save it again."
        ) from None
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError) as error:
        raise ValueError(
            f"{name!r} cannot be read as a model of Keras: its configuration is damaged ({type(error).__name__}); take "
            "it anew or save it again."
        ) from None
    known = _with_statistics(network, weights)
    assert isinstance(known, BaseNetwork)
    return Imported(known, weights)


def _weights(network: BaseNetwork, file: KerasFile, variables: Any) -> Weights:
    """The network's, from the arrays of the file."""
    found: dict[str, Array] = constants(network)
    for variable, path, array in file.arrays(variables):
        try:
            found |= zip(variable.ours, variable.read(array), strict=True)
        except (ValueError, IndexError):
            raise Damaged(f"{path!r} has the shape {array.shape}, which is none of a {variable.name}") from None
    shapes = {name: tuple(array.shape) for name, array in named_arrays(network.abstract_weights())}
    for name, shape in shapes.items():
        if name not in found or found[name].shape != shape:
            received = found[name].shape if name in found else "nothing"
            raise Damaged(f"weight {name!r} would have the shape {shape}, where it has {received}")
    return nested_weights({name: np.ascontiguousarray(found[name]) for name in shapes})


def _with_statistics(layer: Layer, weights: Weights) -> Layer:
    """The layer with each Normalization in it told what it has learned, so that fresh weights have it, too."""
    if isinstance(layer, Normalization):
        return Normalization(weights["mean"], weights["variance"], name=layer.name, trainable=layer.trainable)
    if not isinstance(layer, Composite):
        return layer
    changed = {
        child.name: new
        for child in layer.owners
        if child.key in weights and (new := _with_statistics(child.layer, weights[child.key])) is not child.layer
    }
    return layer.replaced(changed) if changed else layer
