"""What comes of a model of another library: a network, and its weights."""

from __future__ import annotations

from typing import NamedTuple

from sparkdl.base_network import BaseNetwork
from sparkdl.layers.base import Weights


class Imported(NamedTuple):
    """A network of another library.

    Attributes
    ----------
    network : Network or Graph
    weights : dict of dict of arrays
        By layer and name, as `load_weights` gives them.
    """

    network: BaseNetwork
    weights: Weights
