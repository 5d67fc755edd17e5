"""A network that reads integers: they stay int32 from the column to the layer, and what is no integer is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_cases import arrays, same_bits

from sparkdl import DeepClassifier, Network
from sparkdl.layers import Dense, Layer
from sparkdl.spark.classification import DeepClassificationModel

KINDS = np.array([300, 301, 16_777_217, -5])  # of which bfloat16 rounds two, and float32 the third, to others
COUNT = 96


@dataclass(frozen=True)
class Places(Layer):
    """1 for the known integer that x is, in a row of zeros: x (batch, 1) of int32, y (batch, known integers)."""

    @property
    def takes_integers(self) -> bool:
        return True

    def forward(self, weights: Any, x: Any) -> Any:
        assert x.dtype == "int32"
        return (x == jax.numpy.array(KINDS, "int32")[None]).astype("float32")


NETWORK = Network([Places(), Dense(4)], input_shape=(1,))
# Of every form the rows, whose label is the place of their number.
FORMS = {
    "int": lambda number: number.cast("int"),
    "bigint": lambda number: number.cast("bigint"),
    "double": lambda number: number.cast("double"),
    "array<int>": lambda number: F.array(number.cast("int")),
    "Vector": lambda number: array_to_vector(F.array(number.cast("double"))),
}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    numbers = spark.createDataFrame([(int(KINDS[at % 4]), at % 4) for at in range(COUNT)], "number bigint, label int")
    return numbers.select("label", *(form(F.col("number")).alias(name) for name, form in FORMS.items())).cache()


@pytest.fixture(scope="module")
def model(rows: DataFrame) -> DeepClassificationModel:
    return estimator("int").fit(rows)


def estimator(column: str, **params: Any) -> DeepClassifier:
    return DeepClassifier(
        network=NETWORK, featuresCol=column, optimizer="sgd", stepSize=2.0, maxIter=10, batchSize=32, **params
    )


@pytest.mark.parametrize("column", ["bigint", "Vector"])
def test_columns_of_equal_numbers_train_to_equal_weights(rows: DataFrame, model: Any, column: str) -> None:
    found = estimator(column).fit(rows)
    assert same_bits(arrays(model), arrays(found))
    scored = found.transform(rows).select("label", "prediction").collect()
    assert all(row.label == row.prediction for row in scored)


def test_no_dtype_of_computation_touches_them(rows: DataFrame) -> None:
    scored = estimator("array<int>", computeDtype="bfloat16").fit(rows)
    assert scored.evaluate(rows).accuracy == 1
    assert scored.score_rows(rows).where("loss < 1").count() == COUNT


def test_a_saved_model_reads_them_again(rows: DataFrame, model: Any, tmp_path: Path) -> None:
    model.write().overwrite().save(str(tmp_path / "model"))
    loaded = DeepClassificationModel.load(str(tmp_path / "model"))
    assert loaded.transform(rows).where("prediction = label").count() == COUNT


@pytest.mark.parametrize("value", [3e9, Vectors.dense([0.5])], ids=str)
def test_what_is_no_integer_is_refused_skipped_or_given_null(
    spark: SparkSession, rows: DataFrame, model: Any, value: Any
) -> None:
    kind = "double" if isinstance(value, float) else "Vector"
    strange = spark.createDataFrame([(0, value)], ["label", kind]).unionByName(rows.select("label", kind))
    sentence = f"featuresCol '{kind}' must hold whole numbers that int32 holds, received {value}, as in the row"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        estimator(kind).fit(strange)
    skipping = estimator(kind, handleInvalid="skip").fit(strange)
    assert same_bits(arrays(model), arrays(skipping))
    assert skipping.summary.skipped == {"no integer": 1}
    keeping = model.copy().setParams(featuresCol=kind, handleInvalid="keep")
    assert keeping.transform(strange).where("prediction is null").count() == 1
