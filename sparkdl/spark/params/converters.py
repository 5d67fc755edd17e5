"""Type converters of Params: from what a user writes to what Spark ML saves as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from pyspark.ml.param import TypeConverters

from sparkdl.specs import MissingClass, Spec


def spec_text(family: type[Spec]) -> Callable[[Any], str]:
    """A type converter: a spec, its name or its JSON becomes JSON text."""
    return partial(_spec_text, family)


def specs_text(family: type[Spec]) -> Callable[[Any], str]:
    """A type converter as of `spec_text` that takes a dict of such by name, too."""
    return partial(_specs_text, family)


def one_of(name: str, *choices: str) -> Callable[[Any], str]:
    """A type converter that lets only these strings pass."""
    return partial(_one_of, name, choices)


def by_name(name: str, of: str, *kinds: type) -> Callable[[Any], dict[str, Any]]:
    """A type converter that lets dicts pass of such values by string; `of` says of what by what."""
    return partial(_by_name, name, of, kinds)


def to_steps(value: Any) -> Any:
    """A type converter that lets a number of steps pass, or a list of two such."""
    return TypeConverters.toListInt(list(value)) if isinstance(value, (list, tuple)) else TypeConverters.toInt(value)


def of_plain(converter: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A type converter that is given Python's values in place of NumPy's, of which Spark's know some."""
    return partial(_of_plain, converter)


# Partial calls of these, not closures, lest no stage can be pickled.


def _of_plain(converter: Callable[[Any], Any], value: Any) -> Any:
    return converter(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _spec_text(family: type[Spec], value: Any) -> str:
    try:
        return json.dumps(family.of(value).to_json(), sort_keys=True)
    except MissingClass:
        raise
    except ValueError as error:
        raise TypeError(str(error)) from None  # what pyspark expects of a converter


def _specs_text(family: type[Spec], value: Any) -> str:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = json.loads(value)
    if not isinstance(value, Mapping) or isinstance(value.get("type"), str):
        return _spec_text(family, value)
    return json.dumps({name: json.loads(_spec_text(family, one)) for name, one in value.items()}, sort_keys=True)


def _by_name(name: str, of: str, kinds: tuple[type, ...], value: Any) -> dict[str, Any]:
    known = isinstance(value, Mapping) and all(
        isinstance(key, str) and isinstance(item, kinds) and not isinstance(item, bool) for key, item in value.items()
    )
    if not known:
        raise TypeError(f"{name} must be a dict of {of}, received {value!r}.")
    return dict(value)


def _one_of(name: str, choices: tuple[str, ...], value: Any) -> str:
    if value not in choices:
        raise TypeError(f"{name} must be one of {', '.join(choices)}, received {value!r}.")
    return str(value)
