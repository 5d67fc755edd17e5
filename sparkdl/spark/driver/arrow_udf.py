"""UDFs whose bodies take and give Arrow arrays, with every pyspark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from sparkdl.scoring.inference import Batch
from sparkdl.spark.tasks.pandas_columns import from_pandas


def arrow_udf(predict: Callable[[Iterator[Batch]], Iterator[pa.Array]], kind: DataType) -> Any:
    """A UDF of `kind` whose body takes and gives Arrow arrays, also where Spark has only those of pandas."""
    if hasattr(F, "arrow_udf"):  # pyspark 4.1

        def over_arrow(batches: Iterator[Any]) -> Iterator[pa.Array]:  # Spark hands over a single column bare
            return predict(batch if isinstance(batch, tuple) else (batch,) for batch in batches)

        over_arrow.__annotations__ = {"batches": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
        return F.arrow_udf(over_arrow, kind)  # type: ignore

    import pandas as pd

    def over_pandas(batches: Iterator[Any]) -> Iterator[Any]:
        columns = (batch if isinstance(batch, tuple) else (batch,) for batch in batches)
        for result in predict(tuple(map(from_pandas, batch)) for batch in columns):
            if structured:  # null fields stand for a null struct, which pandas does not know
                yield pa.Table.from_arrays(result.flatten(), [field.name for field in result.type]).to_pandas()
            else:
                yield result.to_pandas()

    structured = isinstance(kind, StructType)
    results = Iterator[pd.DataFrame] if structured else Iterator[pd.Series]
    over_pandas.__annotations__ = {"batches": Iterator[tuple[pd.Series, ...]], "return": results}
    return F.pandas_udf(over_pandas, kind)  # type: ignore
