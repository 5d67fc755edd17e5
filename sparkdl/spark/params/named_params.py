"""Params that are set by name, as keywords of a stage or by setParams, with what is meant by a name that is none."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Self

from pyspark.ml.param import Params

from sparkdl.spark.params.converters import of_plain
from sparkdl.synonyms import PARAMS, bare


class NamedParams(Params):
    """What every stage of sparkdl does with its Params, whichever these are."""

    def _copy_params(self) -> None:
        """As Spark's, which gives a stage the Params of its class; Spark's own among them take NumPy's values, too."""
        super()._copy_params()
        for param in self.params:
            param.typeConverter = of_plain(param.typeConverter)

    def setParams(self, **values: Any) -> Self:
        """Set Params by name; None leaves a Param as it is.

        Raises
        ------
        TypeError
            There is no such Param, or its value is of another kind than it takes.
        """
        for name in values:
            if not self.hasParam(name):
                raise TypeError(f"{type(self).__name__} has no Param {name!r}; {self._hint(name)}")
        return self._set(**{name: value for name, value in values.items() if value is not None})

    def _hint(self, name: str) -> str:
        """What may be meant by the name of no Param."""
        own = {bare(param.name): param.name for param in self.params}
        meant = own.get(bare(name)) or PARAMS.get(bare(name))
        if meant and hasattr(self, f"set{meant[0].upper()}{meant[1:]}"):  # initialModel is no Param
            return f"did you mean {meant}?"
        near = get_close_matches(name, own.values(), 1, 0.5)
        return f"did you mean {near[0]}?" if near else "explainParams() lists those there are."

    def _set(self, **values: Any) -> Self:
        """As Spark's, which copies Params by it; None takes a Param back, as one value of a grid may be."""
        for name, value in values.items():
            if value is None:
                self.clear(self.getParam(name))
        return super()._set(**{name: value for name, value in values.items() if value is not None})
