"""Ready networks that start from a file of weights: what their functions take beside their own arguments."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import WRAPPER_ASSIGNMENTS, wraps
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import numpy as np

from sparkdl.base_network import BaseNetwork
from sparkdl.interchange.imported import Imported
from sparkdl.interchange.weight_files import load_weights
from sparkdl.layers import Normalization, Rescale
from sparkdl.network import Network

# Mean and standard deviation of red, green and blue between 0 and 1; the first two as timm calls them.
PREPARATIONS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),  # torchvision's networks, and timm's ResNets
    "inception": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),  # vision transformers of timm and Hugging Face
    "facenet": ((0.5, 0.5, 0.5), (128 / 255, 128 / 255, 128 / 255)),  # facenet-pytorch: (x - 127.5) / 128
}

Arguments = ParamSpec("Arguments")
Built = TypeVar("Built", bound=BaseNetwork, covariant=True)
Path = str | os.PathLike[str]
Preparation = str | Sequence[Sequence[float]]


class Ready(Protocol[Arguments, Built]):
    """The function of a ready network: it builds the network or, where `weights` names a file, gives these with it."""

    @overload
    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Built: ...

    @overload
    def __call__(
        self,
        *args: Any,
        weights: Path,
        names: str | None = None,
        seed: int = 0,
        frozen_until: str | None = None,
        preprocess: Preparation | None = None,
        **kwargs: Any,
    ) -> Imported: ...

    @overload
    def __call__(
        self, *args: Any, frozen_until: str, preprocess: Preparation | None = None, **kwargs: Any
    ) -> Built: ...

    @overload
    def __call__(self, *args: Any, preprocess: Preparation, **kwargs: Any) -> Built: ...


def pretrainable(build: Callable[Arguments, Built]) -> Ready[Arguments, Built]:
    """Give the function of a ready network these keywords more.

    Parameters
    ----------
    weights : str or path, optional
        A safetensors file, by our names or others' (see `sparkdl.interchange.load_weights`). The function then returns
        `Imported(network, weights)` in place of the network alone; a last layer of other `classes` starts afresh.
    names : str, optional
        Whose names the file has; by default that is seen.
    seed : int, default 0
        Of a last layer that starts afresh.
    frozen_until : str, optional
        Training leaves this layer and all before it as they are; "layer3" is the last of "layer3_0", "layer3_1", ...
    preprocess : str or pair of sequences, optional
        Of networks of images: rows are the bytes of pixels, and the network itself divides them by 255, subtracts the
        means of the channels and divides by their standard deviations: "imagenet", "inception" (0.5 for all), "facenet"
        (0.5 and 128 / 255), or two sequences of these, between 0 and 1. Its first two layers then are "rescaled" and
        "normalized".

    Raises
    ------
    OSError
        The file is not there or cannot be read.
    ValueError
        It does not fit the network, there is no such layer, or the network reads no images of so many channels.

    Examples
    --------
    >>> from sparkdl import models
    >>> from sparkdl.interchange import save_weights
    >>> first = models.resnet((32, 32, 3), classes=10, blocks=(1, 1), filters=8)
    >>> save_weights("first.safetensors", first.init(0), first, names="torchvision")
    >>> network, weights = models.resnet(
    ...     (32, 32, 3),
    ...     classes=5,
    ...     blocks=(1, 1),
    ...     filters=8,
    ...     weights="first.safetensors",
    ...     frozen_until="layer1",
    ...     preprocess="imagenet",
    ... )
    >>> weights["fc"]["kernel"].shape
    (16, 5)
    """

    @wraps(build, assigned=[name for name in WRAPPER_ASSIGNMENTS if name != "__annotations__"])
    def ready(
        *args: Any,
        weights: Path | None = None,
        names: str | None = None,
        seed: int = 0,
        frozen_until: str | None = None,
        preprocess: Preparation | None = None,
        **kwargs: Any,
    ) -> Any:
        network: BaseNetwork = build(*args, **kwargs)
        if preprocess is not None:
            network = _prepared(network, preprocess)
        if frozen_until is not None:
            network = network.frozen(until=frozen_until)
        if weights is None:
            if names is not None or seed:
                raise ValueError(
                    f"names and seed of {build.__name__} are of weights=, which is not given; name a file."
                )
            return network
        return Imported(network, load_weights(weights, network, names, seed))

    taken = inspect.signature(ready, follow_wrapped=False).parameters.values()
    more = [each for each in taken if each.kind is each.KEYWORD_ONLY]
    own = inspect.signature(build)
    ready.__signature__ = own.replace(parameters=[*own.parameters.values(), *more])  # type: ignore[attr-defined]
    return ready  # type: ignore[return-value]


def _prepared(network: BaseNetwork, preprocess: Preparation) -> Network:
    """The network with layers before it that make of bytes what it has learned on; the others keep their names."""
    named = PREPARATIONS.get(preprocess) if isinstance(preprocess, str) else preprocess
    if not isinstance(named, Sequence | np.ndarray) or len(named) != 2:
        known = ", ".join(map(repr, PREPARATIONS))
        raise ValueError(
            f"preprocess must be one of {known}, or the means and standard deviations of the channels, received "
            f"{preprocess!r}; choose one of them."
        )
    means, deviations = named
    shape = network.input_shape if isinstance(network, Network) else None
    if not isinstance(network, Network) or shape is None or len(shape) != 3 or shape[-1] != len(means):
        raise ValueError(
            f"preprocess={preprocess!r} is for a Network that reads images of {len(means)} channels, received one that "
            f"reads {network.input_shapes}; leave it out, or give means and deviations of as many channels."
        )
    before = [Rescale(1 / 255, name="rescaled"), Normalization(means, [d * d for d in deviations], name="normalized")]
    layers = [replace(layer, name=name) for layer, name in zip(network.layers, network.names, strict=True)]
    return Network([*before, *layers], shape)
