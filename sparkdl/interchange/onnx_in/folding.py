"""Operators on constants, such as those that work out a shape, computed as the file is read.

The batch, and steps of rows of any length, have no size in a file. They are computed with as if they had, by primes
that no other size is a multiple of. Arrays that are alike along such an axis hold their numbers once, by a stride of 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sparkdl.arrays import Array
from sparkdl.interchange.onnx_extra import require_onnx
from sparkdl.interchange.onnx_in.onnx_file import Operator
from sparkdl.interchange.onnx_in.refusal import Refused

BATCH, STEPS = 1_000_003, 1_000_033  # primes
MOST = 1 << 27  # numbers that a constant may come to hold
MOST_LISTED = 1 << 16  # sizes, axes or places, of which an array of a file has a few for each of its axes
COUNTED = 1 << 60  # numbers of which NumPy can count the bytes

Fold = Callable[..., Any]


def once(array: Array, kept: int = 0) -> Array:
    """The numbers of an array without those that repeat along an axis, which becomes one of size 1; some last stay."""
    strides = array.strides[: max(0, array.ndim - kept)]
    return array[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)]


def same_along(array: Array, axis: int) -> Array:
    """The array with an axis of size 1 where all that lies along it is the same."""
    first = array.take([0], axis)
    is_same = array.shape[axis] == 1 or array.strides[axis] == 0 or bool(np.all(array == first))
    return first if is_same else array


def check_size(*sizes: int) -> None:
    """Refused for more numbers than a constant may hold."""
    if math.prod(sizes) > MOST:
        raise Refused(f"its constants come to arrays of {math.prod(sizes)} numbers, more than the {MOST} that are made")


def check_whole(array: Array) -> Array:
    """The array, which may then be copied; Refused where that would repeat its numbers more often than may be."""
    if once(array).size != array.size:
        check_size(array.size)
    return array


def listed(array: Array) -> list[Any]:
    """The sizes, axes or places that a constant names."""
    if array.size > MOST_LISTED:
        raise Refused(f"it names {array.size} sizes, axes or places at once, more than the {MOST_LISTED} that are read")
    return array.ravel().tolist()


def _elementwise(function: Fold) -> Fold:
    def fold(operator: Operator, *arrays: Array) -> Array:
        small = [once(array) for array in arrays]
        check_size(*np.broadcast_shapes(*(array.shape for array in small)))
        with np.errstate(all="ignore"):
            made = function(*small)
        return np.broadcast_to(made, np.broadcast_shapes(*(array.shape for array in arrays)))

    return fold


def _divided(one: Array, other: Array) -> Array:
    if one.dtype.kind == "f":
        return one / other
    quotient = np.abs(one) // np.maximum(np.abs(other), 1)
    return (np.sign(one) * np.sign(other) * quotient).astype(one.dtype)  # towards 0, as in C


def _cast(operator: Operator, array: Array) -> Array:
    dtype = require_onnx().helper.tensor_dtype_to_np_dtype(operator.attributes["to"])
    dtype = np.dtype(np.float32) if np.dtype(dtype).name in ("float16", "bfloat16") else np.dtype(dtype)
    return np.broadcast_to(once(array).astype(dtype), array.shape)


def _constant(operator: Operator) -> Array:
    named = {"value": None, "value_float": np.float32, "value_floats": np.float32, "value_int": np.int64}
    for name, dtype in (named | {"value_ints": np.int64}).items():
        if name in operator.attributes:
            return np.asarray(operator.attributes[name], dtype)
    raise Refused("it has a constant that is no array of numbers")


def _filled(operator: Operator, shape: Array) -> Array:
    value = operator.attributes.get("value", np.zeros(1, np.float32))
    return np.broadcast_to(value.reshape(()), sizes(shape))


def _expanded(operator: Operator, array: Array, shape: Array) -> Array:
    wanted = list(sizes(shape))
    for axis in range(-min(array.ndim, len(wanted)), 0):  # of steps of any length those that there are
        wanted[axis] = array.shape[axis] if wanted[axis] == STEPS and array.shape[axis] > 1 else wanted[axis]
    return np.broadcast_to(array, np.broadcast_shapes(array.shape, tuple(wanted)))


def _range(operator: Operator, start: Array, stop: Array, step: Array) -> Array:
    count = max(0, math.ceil((stop.item() - start.item()) / step.item()))
    check_size(count)
    return start + np.arange(count, dtype=start.dtype) * step


def counts(numbers: Array, first: int = 0) -> bool:
    """Whether these are the numbers of steps of any length, from a first one on."""
    return numbers.size == STEPS and np.array_equal(numbers.ravel(), first + np.arange(STEPS))


def _those_there(at: Array, size: int) -> Array:
    """Places along an axis of a size: of those of steps of any length, all that there are, as of LearnedPositions."""
    few = once(at)
    first = int(few.flat[0]) if few.size else 0
    if size >= STEPS or not counts(few, first):
        return at
    few = np.arange(first, size).reshape([-1 if length == STEPS else 1 for length in few.shape])
    return np.broadcast_to(few, [few.size if length == STEPS else length for length in at.shape])


def _gathered(operator: Operator, array: Array, at: Array) -> Array:
    axis = operator.attributes.get("axis", 0)
    at = _those_there(at, array.shape[axis])
    few = once(at)
    check_size(array.size // max(1, array.shape[axis]), few.size)
    found, place = np.take(array, few, axis), axis % array.ndim
    return np.broadcast_to(found, (*array.shape[:place], *at.shape, *array.shape[place + 1 :]))


def _gathered_along(operator: Operator, array: Array, at: Array) -> Array:
    """GatherElements: the places along an axis are told for each place along the others."""
    axis = operator.attributes.get("axis", 0) % array.ndim
    at = _those_there(at, array.shape[axis])
    shape = at.shape
    for other in range(array.ndim):  # along which either is alike
        if other != axis and at.strides[other] == 0:
            at = at[(slice(None),) * other + (slice(0, 1),)]
        if other != axis and array.strides[other] == 0:
            array = array[(slice(None),) * other + (slice(0, 1),)]
    check_size(*np.maximum(at.shape, [1 if place == axis else size for place, size in enumerate(array.shape)]))
    array = array[tuple(slice(None) if place == axis else slice(size) for place, size in enumerate(shape))]
    return np.broadcast_to(np.take_along_axis(array, at, axis), shape)


def _concatenated(operator: Operator, *arrays: Array) -> Array:
    check_size(sum(array.size for array in arrays))
    return np.concatenate(arrays, operator.attributes["axis"])


def slices(operator: Operator, rank: int, *ends: Array | None) -> tuple[slice, ...]:
    """What a Slice takes of each axis of an array; its ends are attributes up to opset 9, and arrays after that."""
    told = [operator.attributes.get(name) for name in ("starts", "ends", "axes", "steps")]
    for place, given in enumerate(ends):
        told[place] = told[place] if given is None else listed(given)
    starts, stops, axes, steps = told
    if starts is None or stops is None:
        raise Refused("it has a Slice without a beginning or an end")
    found = [slice(None)] * rank
    axes = list(range(len(starts))) if axes is None else axes
    for axis, start, stop, step in zip(axes, starts, stops, steps or [1] * len(starts), strict=True):
        found[axis] = slice(start, None if step < 0 and stop < -MOST else stop, step)
    return tuple(found)


def _sliced(operator: Operator, array: Array, *ends: Array | None) -> Array:
    return array[slices(operator, array.ndim, *ends)]


def axes_of(operator: Operator, given: Array | None = None) -> list[int] | None:
    """The axes that an operator names, as an attribute or by an array; None of one that names none."""
    return operator.attributes.get("axes") if given is None else listed(given)


def _unsqueezed(operator: Operator, array: Array, axes: Array | None = None) -> Array:
    return np.expand_dims(array, tuple(axes_of(operator, axes) or ()))


def _squeezed(operator: Operator, array: Array, axes: Array | None = None) -> Array:
    named = axes_of(operator, axes)
    return np.squeeze(array, None if named is None else tuple(named))


def sizes(shape: Array) -> tuple[int, ...]:
    """An array of sizes as such."""
    found = tuple(map(int, listed(shape)))
    if len(found) > 32 or any(size < 0 for size in found) or math.prod(found) >= COUNTED:
        raise Refused(f"it makes an array of the shape {found}")
    return found


def target(operator: Operator, given: tuple[int, ...], wanted: Array) -> tuple[int, ...]:
    """The sizes that a Reshape gives an array of the sizes `given`."""
    keeps = not operator.attributes.get("allowzero", 0)
    shape = [
        given[place] if size == 0 and keeps and place < len(given) else int(size)
        for place, size in enumerate(listed(wanted))
    ]
    known = math.prod(size for size in shape if size != -1)
    return tuple(math.prod(given) // max(known, 1) if size == -1 else size for size in shape)


def _reshaped(operator: Operator, array: Array, shape: Array) -> Array:
    wanted = target(operator, array.shape, shape)
    return check_whole(array).reshape(wanted)


def shape_of(operator: Operator, shape: tuple[int, ...]) -> Array:
    """What a Shape gives of an array of that shape."""
    return np.asarray(shape[operator.attributes.get("start", 0) : operator.attributes.get("end")], np.int64)


def _first_rows(operator: Operator, table: Array) -> Array:
    return table[: int(operator.attributes["count"])]


def _transposed(operator: Operator, array: Array) -> Array:
    return array.transpose(operator.attributes.get("perm"))


def _tiled(operator: Operator, array: Array, times: Array) -> Array:
    check_size(array.size, *sizes(times))
    return np.tile(array, sizes(times))


def _triangle(operator: Operator, array: Array, k: Array | None = None) -> Array:
    check_size(array.size)
    side = np.triu if operator.attributes.get("upper", 1) else np.tril
    return side(array, 0 if k is None else int(k.item()))


def _reduced(function: Fold) -> Fold:
    def fold(operator: Operator, array: Array, axes: Array | None = None) -> Array:
        named, keep = axes_of(operator, axes), bool(operator.attributes.get("keepdims", 1))
        check_size(array.size)
        return np.asarray(function(array, axis=None if named is None else tuple(named), keepdims=keep))

    return fold


FOLDS: Mapping[str, Fold] = {
    "Add": _elementwise(np.add), "Sub": _elementwise(np.subtract), "Mul": _elementwise(np.multiply),
    "Div": _elementwise(_divided), "Mod": _elementwise(np.mod), "Pow": _elementwise(np.power),
    "Min": _elementwise(np.minimum), "Max": _elementwise(np.maximum), "Neg": _elementwise(np.negative),
    "Abs": _elementwise(np.abs), "Sqrt": _elementwise(np.sqrt), "Exp": _elementwise(np.exp),
    "Log": _elementwise(np.log), "Reciprocal": _elementwise(np.reciprocal), "Floor": _elementwise(np.floor),
    "Ceil": _elementwise(np.ceil), "Equal": _elementwise(np.equal), "Less": _elementwise(np.less),
    "Greater": _elementwise(np.greater), "LessOrEqual": _elementwise(np.less_equal),
    "GreaterOrEqual": _elementwise(np.greater_equal), "Not": _elementwise(np.logical_not),
    "And": _elementwise(np.logical_and), "Or": _elementwise(np.logical_or), "Where": _elementwise(np.where),
    "Identity": lambda operator, array: array, "Cast": _cast, "Constant": _constant,
    "ConstantOfShape": _filled, "Expand": _expanded, "Range": _range, "Gather": _gathered,
    "GatherElements": _gathered_along, "Concat": _concatenated, "Slice": _sliced, "Unsqueeze": _unsqueezed,
    "Squeeze": _squeezed, "Reshape": _reshaped, "Shape": lambda operator, array: shape_of(operator, array.shape),
    "Size": lambda operator, array: np.asarray(array.size, np.int64), "Transpose": _transposed, "Tile": _tiled,
    "Trilu": _triangle, "FirstRows": _first_rows, "ReduceProd": _reduced(np.prod), "ReduceSum": _reduced(np.sum),
    "ReduceMax": _reduced(np.max), "ReduceMin": _reduced(np.min),
}  # fmt: skip
