"""Type converters of Params: from what a user writes to what Spark ML saves as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sparkdl.specs import MissingClass, Spec


def spec_text(family: type[Spec]) -> Callable[[Any], str]:
    """A type converter: a spec, its name or its JSON becomes JSON text."""

    def convert(value: Any) -> str:
        try:
            return json.dumps(family.of(value).to_json(), sort_keys=True)
        except MissingClass:
            raise
        except ValueError as error:
            raise TypeError(str(error)) from None  # what pyspark expects of a converter

    return convert


def one_of(name: str, *choices: str) -> Callable[[Any], str]:
    """A type converter that lets only these strings pass."""

    def convert(value: Any) -> str:
        if value not in choices:
            raise TypeError(f"{name} must be one of {', '.join(choices)}, received {value!r}.")
        return str(value)

    return convert
