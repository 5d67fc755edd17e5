"""An update of a few rows of large tables, which touches no others, of theirs or of what the optimizer keeps beside.

AdaGrad's sums of squares, for one, have an array like the table; its rows are taken, moved and put back with the
table's own. What the optimizer computes is what it would of the whole table, for those rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax

from sparkdl.layers.factored import is_table_rows


def apply_update(
    transformation: optax.GradientTransformation, gradient: Any, state: Any, learned: Any, adds_up: bool = False
) -> tuple[Any, Any]:
    """(learned, state) after a step by a gradient in which tables may have `TableRows`.

    Rows that these do not name stay as they are, whatever the optimizer would have done to them. Under an optimizer
    that `adds_up`, slopes of one row need not be added up before.
    """
    leaves, structure = jax.tree.flatten(gradient, is_leaf=is_table_rows)
    if not any(map(is_table_rows, leaves)):
        return _in_place(transformation, gradient, state, learned)
    if adds_up:
        slopes = jax.tree.unflatten(structure, [leaf.slopes if is_table_rows(leaf) else leaf for leaf in leaves])
        changes, state = transformation.update(slopes, state, jax.tree.map(jnp.zeros_like, slopes))
        return jax.tree.map(_added, learned, changes, gradient), state
    merged = [leaf.merged() if is_table_rows(leaf) else leaf for leaf in leaves]
    slopes = jax.tree.unflatten(structure, [leaf.slopes if is_table_rows(leaf) else leaf for leaf in merged])
    rows = jax.tree.unflatten(structure, merged)
    few = jax.tree.map(_taken, learned, rows)
    of_state = optax.tree.map_params(transformation, _beside, state, rows, is_leaf=_is_elsewhere)
    changes, moved_state = transformation.update(slopes, jax.tree.map(_taken, state, of_state), few)
    moved = optax.apply_updates(few, changes)
    learned = jax.tree.map(_put_back, learned, moved, rows)
    return learned, jax.tree.map(_put_back, state, moved_state, of_state)


def _in_place(transformation: optax.GradientTransformation, gradient: Any, state: Any, learned: Any) -> tuple[Any, Any]:
    """The same for whole arrays, with a first axis of one as they have between steps.

    XLA would not reshape what it updates in place, but write the new elsewhere and copy it.
    """

    def moved(gradient: Any, state: Any, learned: Any) -> tuple[Any, Any]:
        changes, state = transformation.update(gradient, state, learned)
        return optax.apply_updates(learned, changes), state

    stacked = jax.tree.map(lambda array: array[None], (gradient, state, learned))
    return jax.tree.map(lambda array: array[0], jax.vmap(moved)(*stacked))


def _beside(array: Any, rows: Any) -> Any:
    """The rows of the table beside which the optimizer keeps this array."""
    return array if _is_elsewhere(array) else rows


def _is_elsewhere(array: Any) -> bool:
    """Whether it stands for an array of which another part of the state is."""
    return isinstance(array, optax.MaskedNode)


def _added(array: Any, change: Any, rows: Any) -> Any:
    return replace(rows, slopes=change).add_to(array) if is_table_rows(rows) else array + change


def _taken(array: Any, rows: Any) -> Any:
    return rows.taken(array) if is_table_rows(rows) else array


def _put_back(array: Any, moved: Any, rows: Any) -> Any:
    return rows.put(array, moved) if is_table_rows(rows) else moved
