"""Weights of networks in safetensors files, by our names or by those that others give the same arrays."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.base_network import BaseNetwork
from sparkdl.interchange.hugging_face_names import hugging_face
from sparkdl.interchange.layouts import AS_IT_IS
from sparkdl.interchange.links import Link, Table
from sparkdl.interchange.shards import read_arrays
from sparkdl.interchange.torch_names import facenet_pytorch, timm, torchvision
from sparkdl.layers import Normalization
from sparkdl.layers.base import Weights
from sparkdl.tensor_file import write_tensors
from sparkdl.weights import named_arrays, nested_weights

WRAPPERS = ("module.", "_orig_mod.", "model.")  # what DataParallel, torch.compile and trainers put before every name
OLDER = {  # names, as of BERT's files of TensorFlow, and of those that torchvision publishes of vision transformers
    r"\.gamma$": ".weight",
    r"\.beta$": ".bias",
    r"\.mlp\.linear_1\.": ".mlp.0.",
    r"\.mlp\.linear_2\.": ".mlp.3.",
}
SHOWN = 5  # names in a sentence


def _ours(network: BaseNetwork) -> Table:
    """Arrays by their paths."""
    return Table([Link(path, (path,), AS_IT_IS) for path in _shapes(network)])


NAMES: dict[str, Callable[[BaseNetwork], Table | None]] = {
    "sparkdl": _ours,
    "torchvision": torchvision,
    "timm": timm,
    "huggingface": hugging_face,
    "facenet_pytorch": facenet_pytorch,
}


def load_weights(
    path: str | os.PathLike[str], network: BaseNetwork, names: str | None = None, seed: int = 0
) -> Weights:
    """The weights of a network, from a safetensors file, or from several that an index lists.

    They are what `initialModel` of the estimators and `initial` of `training.fit` start from. Where the file has
    another number of classes than the network, or no layer of classes, that layer starts afresh. What a network does to
    images before its first layer of theirs, by `Rescale` and `Normalization`, stays as it is.

    Parameters
    ----------
    path : str or path
        Of the file, or of model.safetensors.index.json, which lies beside the files of a large model.
    network : Network or Graph
    names : str, optional
        "sparkdl", "torchvision", "timm", "huggingface" or "facenet_pytorch": whose names the file has, and whose
        layouts; by default those of which it has most. Files of PyTorch may have the prefix of a wrapper, such as
        "module.".
    seed : int, default 0
        Of a layer of classes that starts afresh.

    Returns
    -------
    dict of dict of arrays
        By layer and name; floats of half precision as float32.

    Raises
    ------
    OSError
        A file is not there or cannot be read.
    ValueError
        It is no safetensors file, or lacks arrays, or has others, or of other shapes, or other ones than the index
        says; or there is no table of its names for the network.

    Examples
    --------
    >>> from sparkdl import models
    >>> from sparkdl.interchange import load_weights, save_weights
    >>> network = models.resnet((32, 32, 3), classes=10, blocks=(1, 1), filters=8)
    >>> save_weights("resnet.safetensors", network.init(0), network, names="torchvision")
    >>> other = models.resnet((32, 32, 3), classes=3, blocks=(1, 1), filters=8)
    >>> load_weights("resnet.safetensors", other)["conv1"]["kernel"].shape
    (3, 3, 3, 8)
    """
    taken = file_weights(path, network, names)
    return taken if taken.keys() == network.abstract_weights().keys() else {**network.init(seed), **taken}


def file_weights(path: str | os.PathLike[str], network: BaseNetwork, names: str | None = None) -> Weights:
    """As `load_weights`, without a layer of classes that is to start afresh."""
    asked = None if names is None else _table(network, names)
    arrays, shapes = read_arrays(path), _shapes(network)
    table = asked or _fullest(network, arrays, os.fspath(path))
    given = _named(arrays, table)
    afresh = {link for link in table.links if table.of_head(link) and _differs(link, given, shapes)}
    if afresh:  # a layer starts afresh as a whole
        afresh = {link for link in table.links if table.of_head(link)}
    found = constants(network)
    made = {link for link in table.links if link.theirs not in given and found.keys() >= set(link.ours)}
    wanted = [link for link in table.links if link not in afresh | made]
    _check(wanted, given, table, shapes, os.fspath(path))
    for link in wanted:
        array = given[link.theirs]
        found |= link.read(array if array.dtype.itemsize >= 4 else array.astype(np.float32), shapes)
    return nested_weights({path: np.array(found[path]) for path in shapes if path in found})


def save_weights(
    path: str | os.PathLike[str], weights: Weights, network: BaseNetwork | None = None, names: str = "sparkdl"
) -> None:
    """Write weights to a safetensors file.

    Parameters
    ----------
    path : str or path
    weights : dict of dict of arrays
        Of a network, or `weights` of a model.
    network : Network or Graph, optional
        Whose weights they are; needed for names that are not ours.
    names : str, default "sparkdl"
        "sparkdl", "layer/array"; or "torchvision", "timm", "huggingface" or "facenet_pytorch": whose names and layouts
        the file gets, so that these libraries load it.

    Raises
    ------
    ValueError
        The weights are not those of the network, or there is no table of these names for it.
    """
    arrays = {name: np.asarray(array) for name, array in named_arrays(weights)}
    if network is not None:
        network.check_weights(weights)
    if names == "sparkdl":
        return write_tensors(path, arrays, {"format": "sparkdl"})
    if network is None:
        raise ValueError(f"save_weights with names={names!r} needs network=, whose layers decide what is written.")
    table = _table(network, names)
    write_tensors(path, {_written(link.theirs, table): link.write(arrays) for link in table.links}, {"format": "pt"})
    return None


def known_names(network: BaseNetwork) -> list[str]:
    """Whose names of the network's weights are known, as `names` of `load_weights` and `save_weights` has them."""
    return [names for names in NAMES if _known(network, names)]


def _table(network: BaseNetwork, names: str) -> Table:
    """Of the network, with links to all of its arrays."""
    if names not in NAMES:
        known = ", ".join(map(repr, NAMES))
        raise ValueError(f"names must be one of {known}, received {names!r}; choose one of them.")
    if (table := _known(network, names)) is None:
        raise ValueError(
            f"No table of names={names!r} is known for this network, only for those of sparkdl.models that its "
            f"documentation tells; its layers with weights are {_listed(list(network.abstract_weights()))}."
        )
    return table


def _known(network: BaseNetwork, names: str) -> Table | None:
    """The table, if there is one that has a name for all that the network learns."""
    table = NAMES[names](network)
    if table is None:
        return None
    shapes = _shapes(network)
    links = [link for link in table.links if shapes.keys() >= set(link.ours)]  # a layer may lack its bias
    linked = {path for link in links for path in link.ours}
    return replace(table, links=links) if shapes.keys() - constants(network).keys() <= linked else None


def _fullest(network: BaseNetwork, arrays: Mapping[str, Array], path: str) -> Table:
    """The table of whose names a file has most."""

    def found(table: Table) -> int:
        given = _named(arrays, table)
        return sum(link.theirs in given for link in table.links)

    tables = [table for names in NAMES if (table := _known(network, names))]
    best = max(tables, key=found)
    if not found(best):
        raise ValueError(
            f"{path!r} has none of the names that are known for this network's weights: it has "
            f"{_listed(list(arrays))}; see whether it is of the same network, which names= are known for it, or give "
            "the arrays the names of its layers, as save_weights does."
        )
    return best


def constants(network: BaseNetwork) -> dict[str, Array]:
    """By path the arrays of layers of which no files know but ours: what they were made with."""
    layers = [(leaf.path, leaf.layer) for leaf in network.leaves() if isinstance(leaf.layer, Normalization)]
    return {
        f"{path}/{name}": np.asarray(value, np.float32)
        for path, layer in layers
        for name, value in (("mean", layer.mean), ("variance", layer.variance))
    }


def _shapes(network: BaseNetwork) -> dict[str, Any]:
    return {name: tuple(array.shape) for name, array in named_arrays(network.abstract_weights())}


def _named(arrays: Mapping[str, Array], table: Table) -> dict[str, Array]:
    """The arrays by the table's names, of which a file may lack the prefix, or have another before all."""
    known = {link.theirs for link in table.links}
    names = list(arrays)
    while known.isdisjoint(names) and (wrapper := _wrapper(names)):
        names = [name.removeprefix(wrapper) for name in names]
    found = {}
    for name, array in zip(names, arrays.values(), strict=True):
        short = name
        for older, newer in OLDER.items():
            short = re.sub(older, newer, short)
        longer = f"{table.prefix}{short}"
        found[longer if short not in known and (longer in known or _is_besides(longer, table)) else short] = array
    return found


def _wrapper(names: list[str]) -> str | None:
    return next((own for own in WRAPPERS if names and all(name.startswith(own) for name in names)), None)


def _is_besides(name: str, table: Table) -> bool:
    return re.fullmatch(table.besides, name) is not None


def _differs(link: Link, given: Mapping[str, Array], shapes: Mapping[str, Any]) -> bool:
    return link.theirs not in given or given[link.theirs].shape != link.shape(shapes)


def _check(
    wanted: list[Link],
    given: Mapping[str, Array],
    table: Table,
    shapes: Mapping[str, Any],
    path: str,
) -> None:
    """ValueError unless the file has all that is wanted, in the right shapes, and nothing else."""
    missing = [link.theirs for link in wanted if link.theirs not in given]
    known = {link.theirs for link in table.links}
    surplus = [name for name in given if name not in known and not _is_besides(name, table)]
    if missing or surplus:
        lacks = [f"lacks {_listed(missing)}"] * bool(missing)
        has = [f"has {_listed(surplus)}, which the network has not"] * bool(surplus)
        raise ValueError(
            f"{path!r} does not fit the network: it {' and '.join(lacks + has)}; see whether it is of the same one, "
            "and names= of where it comes from."
        )
    for link in wanted:
        array, shape = given[link.theirs], link.shape(shapes)
        if array.shape != shape:
            raise ValueError(
                f"{path!r} does not fit the network: {link.theirs!r} has the shape {array.shape}, where the network's "
                f"{' and '.join(map(repr, link.ours))} would be {shape}; build the network in the file's sizes."
            )
        if array.dtype.kind not in "fV":
            raise ValueError(f"{path!r}: {link.theirs!r} must hold floats, received {array.dtype}; convert it first.")
    for name, first in table.again.items():
        if name in given and not np.array_equal(given[name], given[first]):
            raise ValueError(
                f"{path!r} does not fit the network: {name!r} differs from {first!r}, where the network uses one array "
                "for both; take a file in which they are tied."
            )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(repr, names[:SHOWN])) + more


def _written(name: str, table: Table) -> str:
    """Networks without a head have no prefix in their files."""
    return name if table.head else name.removeprefix(table.prefix)
