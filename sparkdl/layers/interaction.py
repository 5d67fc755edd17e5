"""Layers in which the features of a table meet: crosses of deep & cross networks, and dot products of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from sparkdl.initializers import Initializer
from sparkdl.layers.base import Array, KernelLayer, Shape, Weights, jitted
from sparkdl.layers.merge import Merge
from sparkdl.layers.products import matmul
from sparkdl.specs import check_integers


@dataclass(frozen=True)
class CrossLayer(KernelLayer, Merge):
    """y = first * (last @ kernel + bias) + last (Wang et al. 2021, "DCN V2", equation 1).

    A cross network is a row of them, each reading the features and what the one before it put out: after k layers,
    products of up to k + 1 features.

    x        (first, last), both (batch, size): the features, and what is to be crossed with them, at first the same
    y        (batch, size)
    weights  kernel (size, size), bias (size,); with a rank, down (size, rank) and kernel (rank, size)

    Parameters
    ----------
    rank : int, optional
        Of a kernel that is the product of two thin matrices, for wide features.
    """

    rank: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, 1, "rank")

    def output_shape(self, input_shape: Sequence[Shape]) -> Shape:  # type: ignore[override]
        self._several(input_shape)
        if len(input_shape) != 2 or input_shape[0] != input_shape[1] or len(input_shape[0]) != 1:
            raise ValueError(
                "CrossLayer expects two vectors of one length, the features and what the cross before it put out, "
                f"received {' and '.join(map(str, input_shape))}; let it read both, at first the features twice."
            )
        return input_shape[0]

    def multiply_adds(self, input_shape: Sequence[Shape]) -> int:  # type: ignore[override]
        size = input_shape[0][0]
        return size * size if self.rank is None else 2 * size * self.rank

    def init(self, key: Array, input_shape: Sequence[Shape]) -> Weights:  # type: ignore[override]
        size = input_shape[0][0]
        if self.rank is None:
            return self.init_kernel(key, (size, size))
        down_key, key = jax.random.split(key)
        down = Initializer.of(self.kernel_initializer).sample(down_key, (size, self.rank))
        return self.init_kernel(key, (self.rank, size)) | {"down": down}

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        first, last = x
        crossed = matmul(last if self.rank is None else matmul(last, weights["down"]), weights["kernel"])
        return first * (crossed + weights["bias"][None] if self.bias else crossed) + last


@dataclass(frozen=True)
class DotInteractions(Merge):
    """The dot products of all pairs of several vectors (Naumov et al. 2019, "DLRM").

    x  tuple of arrays (batch, size)
    y  (batch, pairs): of vectors (1, 0), (2, 0), (2, 1), (3, 0), ...

    Parameters
    ----------
    itself : bool, default False
        Whether every vector is paired with itself, too: (0, 0), (1, 0), (1, 1), ...
    """

    itself: bool = False

    def output_shape(self, input_shape: Sequence[Shape]) -> Shape:  # type: ignore[override]
        self._several(input_shape)
        if len(set(input_shape)) > 1 or len(input_shape[0]) != 1:
            raise ValueError(
                f"DotInteractions expects vectors of one length, received {' and '.join(map(str, input_shape))}; end "
                "all in the same Dense(units), or embed all in the same size."
            )
        return (len(self._pairs(len(input_shape))[0]),)

    def multiply_adds(self, input_shape: Sequence[Shape]) -> int:  # type: ignore[override]
        return len(input_shape) ** 2 * input_shape[0][0]

    @jitted
    def forward(self, weights: Weights, x: tuple[Array, ...]) -> Array:  # type: ignore[override]
        vectors = jnp.stack(x, axis=1)
        products = jnp.einsum("bid,bjd->bij", vectors, vectors)
        return products[:, *self._pairs(len(x))]

    def _pairs(self, vectors: int) -> tuple[np.ndarray, np.ndarray]:
        return np.tril_indices(vectors, 0 if self.itself else -1)
