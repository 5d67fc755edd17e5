"""An array of the file beside ours that holds the same numbers: what only moves numbers changes how one is read.

Axes are groups of parts. An axis that is cut in two has its part replaced by two, axes that are joined become one
group, and an axis of size 1 has no part. So transposing and reshaping cost nothing, until a layer wants an array in an
order of parts that ours is not in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, eq=False)
class Part:
    """A part of an axis; it is itself alone, however large others are.

    Attributes
    ----------
    size : int
        More than 1, unless it is the batch.
    batch : bool
        Whether it numbers the rows.
    any_length : bool
        Whether it numbers the steps of rows of any length.
    """

    size: int
    batch: bool = False
    any_length: bool = False


Group = tuple[Part, ...]  # an axis
Form = tuple[Group, ...]


class NoView(Exception):
    """Sizes that the axes of an array cannot be cut and joined to."""


def new_axis(size: int) -> Group:
    """An axis of a size, of a part of its own."""
    return (Part(size),) if size > 1 else ()


def size_of(group: Sequence[Part]) -> int:
    """Numbers along an axis."""
    return math.prod(part.size for part in group)


def sizes_of(form: Sequence[Group]) -> tuple[int, ...]:
    """Of each axis."""
    return tuple(map(size_of, form))


def parts_of(form: Sequence[Group]) -> Group:
    """All parts, one after the other."""
    return tuple(part for group in form for part in group)


def row_shape(form: Form) -> tuple[int | None, ...]:
    """Of one row of an array of ours, which has the batch first; None is any length."""
    return tuple(None if any(part.any_length for part in group) else size_of(group) for group in form[1:])


@dataclass(frozen=True)
class Value:
    """An array of the file that is computed, and where its numbers are in ours.

    Attributes
    ----------
    node : str
        The node, or input, whose array has them.
    ours : Form
        The axes of that array, the batch first.
    theirs : Form
        The axes of the file's array, of the same parts.
    """

    node: str
    ours: Form
    theirs: Form

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the file's array."""
        return sizes_of(self.theirs)

    def axis(self, number: int) -> int:
        """An axis of theirs, which may be counted from the end."""
        if not -len(self.theirs) <= number < len(self.theirs):
            raise NoView
        return number % len(self.theirs)

    def transposed(self, axes: Sequence[int]) -> Self:
        """With the axes of theirs in another order."""
        if sorted(axes) != list(range(len(self.theirs))):
            raise NoView
        return replace(self, theirs=tuple(self.theirs[axis] for axis in axes))

    def unsqueezed(self, axes: Sequence[int]) -> Self:
        """With axes of size 1 at these places of the outcome."""
        rank = len(self.theirs) + len(axes)
        places, given = {axis % rank for axis in axes}, iter(self.theirs)
        if len(places) < len(axes) or not places <= {*range(rank)}:
            raise NoView
        return replace(self, theirs=tuple(() if place in places else next(given) for place in range(rank)))

    def squeezed(self, axes: Sequence[int] | None) -> Self:
        """Without these axes of size 1, or without all."""
        if axes is None:
            axes = [axis for axis, group in enumerate(self.theirs) if not group]
        dropped = {self.axis(axis) for axis in axes}
        if any(self.theirs[axis] for axis in dropped):
            raise NoView
        return replace(self, theirs=tuple(group for axis, group in enumerate(self.theirs) if axis not in dropped))

    def cut(self, part: Part, *parts: Part) -> Self:
        """With parts in place of one."""

        def changed(form: Form) -> Form:
            return tuple(tuple(new for old in group for new in (parts if old is part else (old,))) for group in form)

        return replace(self, ours=changed(self.ours), theirs=changed(self.theirs))

    def reshaped(self, sizes: Sequence[int]) -> Self:
        """With axes of theirs of these sizes, whose numbers come in the same order.

        Raises
        ------
        NoView
            There are more or fewer numbers, or a size is no product of parts of its axes.
        """
        value, left = self, list(parts_of(self.theirs))
        groups: list[Group] = []
        for size in sizes:
            group: list[Part] = []
            wanted = size
            while left and (wanted > 1 or (left[0].size == 1 and not group)):
                part = left.pop(0)
                if wanted % part.size:
                    if part.size % wanted or part.batch or part.any_length:
                        raise NoView
                    first, rest = Part(wanted), Part(part.size // wanted)
                    value, part = value.cut(part, first, rest), first
                    left.insert(0, rest)
                group.append(part)
                wanted //= part.size
            if wanted != 1:
                raise NoView
            groups.append(tuple(group))
        if left:
            raise NoView
        return replace(value, theirs=tuple(groups))


def aligned(first: Value, other: Value, skip: Sequence[int] = ()) -> tuple[Value, Value]:
    """Both with axes of the same parts, but for those of `skip` and those of size 1 that the one or the other has.

    Raises
    ------
    NoView
        Axes are of other sizes.
    """
    rank = max(len(first.theirs), len(other.theirs))
    first = first.unsqueezed(range(rank - len(first.theirs)))
    other = other.unsqueezed(range(rank - len(other.theirs)))
    for axis in range(rank):
        if axis in skip or not first.theirs[axis] or not other.theirs[axis]:
            continue
        if size_of(first.theirs[axis]) != size_of(other.theirs[axis]):
            raise NoView
        place = 0
        while place < len(first.theirs[axis]):
            one, two = first.theirs[axis][place], other.theirs[axis][place]
            if one.size > two.size:
                first = _halved(first, one, two.size)
            elif two.size > one.size:
                other = _halved(other, two, one.size)
            place += 1
    new = {
        two: one
        for axis in range(rank)
        if axis not in skip and first.theirs[axis]
        for one, two in zip(first.theirs[axis], other.theirs[axis], strict=False)
    }
    if any(one.any_length != two.any_length for two, one in new.items()):
        raise NoView

    def known(form: Form) -> Form:
        return tuple(tuple(new.get(part, part) for part in group) for group in form)

    return first, replace(other, ours=known(other.ours), theirs=known(other.theirs))


def _halved(value: Value, part: Part, size: int) -> Value:
    if part.size % size or part.batch or part.any_length:
        raise NoView
    return value.cut(part, Part(size), Part(part.size // size))
