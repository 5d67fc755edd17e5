"""Predictor: what `transform` of a saved model adds to rows, without Spark and without a JVM."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from sparkdl.arrays import kept_dtype
from sparkdl.scoring.forward import Scoring, compiled, computed
from sparkdl.scoring.inference import scored
from sparkdl.scoring.outputs import by_step, named_heads, widths
from sparkdl.scoring.row_forms import names_of, record_batches, with_columns
from sparkdl.scoring.saved_model import SavedModel, read_model


def load(path: str | os.PathLike[str], *, device: str | None = None, batch_size: int | None = None) -> Predictor:
    """Read a saved model, to score rows without Spark.

    Parameters
    ----------
    path : str
        Of what `save` of a DeepModel, DeepClassificationModel, DeepRegressionModel or Featurizer wrote; or of a
        PipelineModel that ends in one, of which the last stage is taken and no other is run; or of a
        CrossValidatorModel or TrainValidationSplitModel whose best model is such. A local path, or a URI that pyarrow
        (file, hdfs, s3, gs) or fsspec (any other scheme) opens.
    device : str, optional
        "cpu", "gpu", or "auto", what JAX takes by itself; by default the model's deviceType.
    batch_size : int, optional
        The most rows that go through the network at a time; by default the model's batchSize.

    Returns
    -------
    Predictor

    Raises
    ------
    FileNotFoundError
        There is no saved stage.
    ValueError
        The folder holds something else, is of a newer format, or is damaged; a class of yours is not imported; there
        is no such device; or the path cannot be opened. The message says which.

    Notes
    -----
    What is loaded was checked against the digests it was saved with, and is never run: a layer or loss of your own is
    found by its name, so that the module that defines it must have been imported.

    Examples
    --------
    >>> import tempfile
    >>> import sparkdl
    >>> from sparkdl import Featurizer, Network
    >>> from sparkdl.layers import Dense
    >>> network = Network([Dense(3)], input_shape=(2,))
    >>> path = f"{tempfile.mkdtemp()}/featurizer"
    >>> Featurizer(network=network, weights=network.init(0)).save(path)
    >>> rows = spark.createDataFrame([([0.0, 1.0],), ([1.0, 0.0],)], ["features"])
    >>> predictor = sparkdl.load(path)
    >>> predictor.predict({"features": [[0.0, 1.0], [1.0, 0.0]]})["vector"].shape
    (2, 3)
    >>> predictor.predict(rows.toPandas()).columns.tolist()
    ['features', 'vector']
    """
    return Predictor(read_model(path), device=device, batch_size=batch_size)


class Predictor:
    """Scores rows by a saved model as its `transform` does; made by `sparkdl.load`.

    Threads may share one, as nothing of it changes.

    Attributes
    ----------
    uid : str
        The stage's.
    network : Network or Graph
    inputs : tuple of str
        Columns that are read.
    columns : tuple of str
        Columns that are added, in their order.
    schema : pa.Schema
        Their Arrow types: float64 of a class or number; a list of float32, or of float64 with that computeDtype, where
        Spark has a Vector; a list of either where there is one for each step of rows of any length.
    """

    def __init__(self, model: SavedModel, *, device: str | None = None, batch_size: int | None = None) -> None:
        own = model.params
        self.uid, self.network = model.uid, model.network
        heads = [(name, head) for name, head in named_heads(model.kind, model.outputs) if name]
        _check_names([*(name for name, _ in heads), *model.activations.values()])
        self._heads = dict(heads)
        self._invalid: str = own["handleInvalid"]
        shapes = model.network.path_shapes(model.activations)
        self._scoring = Scoring(
            key=model.uid,
            network=model.network.to_json(),
            objective=model.objective.to_json(),
            batch=own["batchSize"] if batch_size is None else batch_size,
            layouts=model.reading.layouts(model.network),
            dtype=own["computeDtype"],
            device=own["deviceType"] if device is None else device,
            activations=model.activations,
            by_step=by_step(model.network, shapes),
            strict=self._invalid == "error",
        )
        self._specs = model.network, model.objective
        self.inputs: tuple[str, ...] = self._scoring.columns
        made_of = {name: head.output for name, head in self._heads.items()}
        made_of |= {name: path for path, name in self._scoring.activations.items()}
        self._of_steps = {name for name, of in made_of.items() if of in self._scoring.by_step}
        found = {name: shapes[path] for path, name in model.activations.items()}
        self._widths = widths(model.network, self._heads, found)
        self.schema: pa.Schema = self._schema()
        self.columns: tuple[str, ...] = tuple(self.schema.names)
        chosen = _device(self._scoring.device)
        weights = computed(self._scoring, model.weights, chosen)
        self._forward = compiled(self._scoring, weights, chosen.platform)

    def predict(self, rows: Any) -> Any:
        """Add the columns of `transform` to rows.

        Parameters
        ----------
        rows : dict of arrays or lists, pd.DataFrame, pa.Table or pa.RecordBatch
            With the columns `inputs`, of n rows, in any form that `transform` takes: numbers, arrays (n, ...), lists
            of any length, bytes, image files, image structs, strings, and Spark's Vectors as Parquet holds them.

        Returns
        -------
        the same kind
            The rows with `columns`, equal to those of `transform` bit for bit, a Vector's doubles being given as the
            floats that they come from. Arrays are (n,) and (n, k), or of n arrays where each row has its own length;
            a frame's lists are arrays. With handleInvalid="keep", a row that cannot be used has nulls in Arrow, and NaN
            or None elsewhere; with "skip" it is left out.

        Raises
        ------
        TypeError
            `rows` is of another kind.
        ValueError
            A column is missing, there twice or of a type that holds no features, a column of a dict is no list of
            values or is of another length than the others, a column to be added is there already, or, with
            handleInvalid="error", a row cannot be used.
        """
        self._check(names_of(rows))
        if not self.columns:
            return rows
        parts = [
            part
            for batch in record_batches(rows, self.inputs)
            for part in scored(tuple(batch.columns), self._forward, self._scoring, self._specs, self._heads)
        ]
        bad = np.concatenate([np.zeros(0, bool), *(part.bad for part in parts)])
        added = {
            name: pa.concat_arrays([pa.array([], kind), *(part.columns[name].cast(kind) for part in parts)])
            for name, kind in zip(self.columns, self.schema.types, strict=True)
        }
        if self._invalid == "skip":
            return with_columns(rows, added, self._widths, self._of_steps, ~bad if bad.any() else None)
        if bad.any():
            places = pa.array(np.arange(len(bad)), mask=bad)
            added = {name: column.take(places) for name, column in added.items()}
        return with_columns(rows, added, self._widths, self._of_steps, None)

    def warm(self, rows: Any) -> None:
        """Compile for rows like these, so that no later ones wait for it.

        Parameters
        ----------
        rows : dict, pd.DataFrame, pa.Table or pa.RecordBatch
            As of `predict`; one row suffices. There is one program for numbers and one for pixels, and of rows of any
            length one for each of the lengths that they are padded to.
        """
        self.predict(rows)

    def _check(self, names: list[str]) -> None:
        """ValueError unless each that is read is one of these columns, and none that is added is."""
        for layout in self._scoring.layouts.values():
            for name in layout.names:
                if name not in names:
                    raise ValueError(
                        f"{layout.param} names column {name!r}, which is not there; the columns are "
                        f"{', '.join(map(str, names))}."
                    )
                if (count := names.count(name)) > 1:
                    raise ValueError(
                        f"{layout.param} names column {name!r}, which is there {count} times; rename or drop all but "
                        "one."
                    )
        for name in self.columns:
            if name in names:
                raise ValueError(f"Output column {name!r} exists already; drop it or name another.")

    def _schema(self) -> pa.Schema:
        floats = pa.float64() if kept_dtype(self._scoring.dtype) == "float64" else pa.float32()
        names = [*self._heads, *self._scoring.activations.values()]
        own = {name: pa.list_(floats) if name in self._widths else pa.float64() for name in names}
        return pa.schema({name: pa.list_(kind) if name in self._of_steps else kind for name, kind in own.items()})


def _check_names(names: list[str]) -> None:
    """ValueError if two columns are to have one name."""
    for at, name in enumerate(names):
        if name in names[:at]:
            raise ValueError(f"Output column {name!r} is asked for twice; give each output a name of its own.")


def _device(kind: str) -> jax.Device:
    """The first of those that are asked for; ValueError if there is none."""
    if kind not in ("auto", "cpu", "gpu"):
        raise ValueError(f"device must be auto, cpu or gpu, received {kind!r}.")
    try:
        return jax.devices(None if kind == "auto" else kind)[0]
    except RuntimeError:
        raise ValueError(
            f"deviceType is {kind!r}, but JAX finds no such device here; load with device='cpu'."
        ) from None
