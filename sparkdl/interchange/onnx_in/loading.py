"""Networks of ONNX files: the file's operators one by one, each told by what it is to ours."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.imported import Imported
from sparkdl.interchange.onnx_extra import require_onnx
from sparkdl.interchange.onnx_in import (
    activating,
    arithmetic,
    attention_parts,
    categories_read,
    choosing,
    joining,
    moves,
    normalizing,
    products,
    recurrence,
    reducing,
    reversing,
    windowed,
)
from sparkdl.interchange.onnx_in.arithmetic_rules import RULES
from sparkdl.interchange.onnx_in.assembly import Assembly
from sparkdl.interchange.onnx_in.category_rules import CATEGORY_RULES
from sparkdl.interchange.onnx_in.folding import BATCH, FOLDS
from sparkdl.interchange.onnx_in.lowering import clean, finished, unused
from sparkdl.interchange.onnx_in.masks import inputs_of_masks, mask_value
from sparkdl.interchange.onnx_in.onnx_file import OnnxFile, Operator, read_onnx
from sparkdl.interchange.onnx_in.patterns import simplified
from sparkdl.interchange.onnx_in.refusal import Refused
from sparkdl.interchange.onnx_in.row_lengths import lengths_value, of_lengths
from sparkdl.interchange.onnx_in.rows import filled, input_value, inputs_of_lengths
from sparkdl.interchange.onnx_in.step_rules import STEP_RULES
from sparkdl.interchange.onnx_in.views import NoView, Part, Value, row_shape

OPERATORS: Mapping[str, Any] = {
    **moves.OPERATORS,
    **choosing.OPERATORS,
    **categories_read.OPERATORS,
    **joining.OPERATORS,
    **activating.OPERATORS,
    **arithmetic.OPERATORS,
    **attention_parts.OPERATORS,
    **products.OPERATORS,
    **windowed.OPERATORS,
    **normalizing.OPERATORS,
    **reducing.OPERATORS,
    **recurrence.OPERATORS,
    **reversing.OPERATORS,
}

# What comes of inputs and attributes that an operator does not have, or of another type or number than it has them.
NOT_AS_THE_STANDARD = (
    ValueError, TypeError, LookupError, ArithmeticError, AttributeError, StopIteration, RecursionError, NoView
)  # fmt: skip


def load_onnx(path: str | os.PathLike[str], constants: Mapping[str, float] | None = None) -> Imported:
    """A network with its weights, from an ONNX file; needs the package onnx, as of sparkdl-jax[onnx].

    It computes what the file's network does at inference, and trains from there. What the file's operators compute is
    told by layers of ours: it may be written by any library whose operators are those of convolutional networks,
    perceptrons, recurrent networks and transformer encoders.

    Rows are in our order, whatever the file's: the batch first, and the channels of images last. A file whose images
    are (batch, 3, 224, 224) becomes a network of rows (224, 224, 3), the first layer behind a Flatten with its weights
    in the order that goes with it; so do outputs that are images. A size that the file leaves open after that of the
    batch is of rows of any length, and so are rows whose lengths, or a mask of whose steps such as `attention_mask`, it
    asks for besides, which `Ragged` ones have within.

    Parameters
    ----------
    path : str or path
        Of the file. Arrays that it keeps beside itself are read from its own folder alone, and nothing of it is run.
    constants : dict of numbers, optional
        By name, inputs of the file that are one number for all rows, and none of the network's: {"token_type_ids": 0}
        of single texts.

    Returns
    -------
    Imported
        The network, a Network if its layers are a chain and else a Graph, and its weights, as float32. Layers have the
        names of the file's nodes, and the outputs of a Graph those of the file's outputs.

    Raises
    ------
    OSError
        The file is not there or cannot be read.
    ImportError
        The package onnx is missing.
    ValueError
        It is no ONNX file, or damaged, or has operators that no layers of ours are known for; the message names the
        node. Or `constants` names an input that it has not.

    Examples
    --------
    >>> import os, tempfile
    >>> from sparkdl import Network
    >>> from sparkdl.interchange import load_onnx, save_onnx
    >>> from sparkdl.layers import Dense, Relu
    >>> network = Network([Dense(8), Relu(), Dense(2)], input_shape=(4,))
    >>> path = os.path.join(tempfile.mkdtemp(), "model.onnx")  # or a file that torch.onnx.export wrote
    >>> save_onnx(path, network, network.init(0))
    >>> found, weights = load_onnx(path)
    >>> found.names, weights["dense_0"]["kernel"].shape
    (('dense_0', 'relu_1', 'dense_2'), (4, 8))
    """
    path = os.fspath(path)
    try:
        return _Reading(read_onnx(path), constants or {}).imported()
    except Refused as refusal:
        raise ValueError(f"{path!r} cannot be imported: {refusal}.") from None
    except NOT_AS_THE_STANDARD:
        raise ValueError(
            f"{path!r} cannot be imported: it is damaged, or not as the standard of ONNX has it."
        ) from None


class _Reading:
    """A file's operators on their way to layers.

    Parameters
    ----------
    file : OnnxFile
    constants : dict of numbers
        Inputs that are one number.
    """

    def __init__(self, file: OnnxFile, constants: Mapping[str, float]) -> None:
        self.file = file
        self.operators = simplified(file, (*CATEGORY_RULES, *STEP_RULES, *RULES))
        self.values: dict[str, Any] = {"": None, **file.constants}
        read = [name for operator in self.operators for name in operator.inputs]
        self.build = Assembly(Counter([*read, *file.outputs]))
        lengths = inputs_of_lengths(self.operators, file.inputs, file.ours)
        masks = inputs_of_masks(file.inputs, file.ours)
        if unknown := set(constants) - {given.name for given in file.inputs}:
            names = [given.name for given in file.inputs]
            raise Refused(f"constants names {sorted(unknown)}, where its inputs are {names}")
        for given in file.inputs:
            if given.name in constants:
                self.values[given.name] = filled(given, constants[given.name])
            elif given.name in lengths:
                batch = (Part(BATCH, batch=True),)
                self.values[given.name] = lengths_value(self.build, given.name, batch)
            elif self.build.readers[given.name]:
                name = unused(clean(given.name) or "input", self.build.inputs)
                value = input_value(name, given, self.operators, bool(lengths or masks), file.ours)
                if given.name in masks:
                    self.values[given.name] = mask_value(self.build, value, given.name)
                    continue
                self.values[given.name], self.build.inputs[name] = value, value.ours

    def imported(self) -> Imported:
        """The network of all of them."""
        for operator in self.operators:
            outputs = self._computed(operator)
            self.values.update(
                zip(operator.outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=False)
            )
        ends: dict[str, Value] = {}
        for name in self.file.outputs:
            value = self.values.get(name)
            if not isinstance(value, Value):
                raise Refused(f"its output {name!r} does not depend on what it reads, or is not computed at all")
            ends[unused(clean(name) or "output", ends)] = value
        try:
            return finished(self.build, ends, self.file.ours)
        except ValueError as error:
            several = sum(None in row_shape(form) for form in self.build.inputs.values()) > 1
            hint = "; an input that is one number for all rows can be given as constants={NAME: NUMBER}" * several
            raise Refused(f"its layers do not fit one another, as {str(error).rstrip('.')}{hint}") from None

    def _computed(self, operator: Operator) -> Any:
        """What an operator gives: an array of ours, a constant, or several of these."""
        given = [self.values.get(name) for name in operator.inputs]
        kinds = [type(value) for value in given if value is not None]
        where = f"its node {operator.name!r} ({operator.kind})"
        try:
            if (made := of_lengths(self.build, operator, given)) is not None:
                return made
            if operator.kind == "Constant" or (kinds and Value not in kinds and operator.kind in FOLDS):
                return self._folded(operator, given)
            if operator.kind not in OPERATORS:
                known = ", ".join(sorted(kind for kind in OPERATORS if require_onnx().defs.has(kind)))
                raise Refused(f"{where} is of no operator that layers are known for; known are {known}")
            return OPERATORS[operator.kind](self.build, operator, *given)
        except NoView:
            raise Refused(f"{where} has arrays of sizes that do not fit it, or that no layer has") from None
        except ValueError as error:  # of a layer
            raise Refused(f"{where} is no layer of ours, as {str(error).rstrip('.')}") from None
        except NOT_AS_THE_STANDARD:
            raise Refused(f"{where} has other inputs or attributes than the standard has for it") from None

    def _folded(self, operator: Operator, given: list[Array | None]) -> Array | tuple[Array, ...]:
        made = FOLDS[operator.kind](operator, *given)
        return made if isinstance(made, tuple) else np.asarray(made)
