"""A column of what a model goes on with is what its network goes on with from the same rows."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from spark_cases import a_model

from sparkdl import DeepModel, Network, models
from sparkdl.decoding.ragged_rows import RaggedRows
from sparkdl.layers import Dense, Embedding, LastStep, Lstm, Ragged

COUNT = 6
PROMPTS = [[at % COUNT, *range(at % 4)] for at in range(11)]
STEPPED = Network([Embedding(COUNT, 4), Lstm(5), Dense(COUNT)], input_shape=(None,))
WHOLE = Network([Embedding(COUNT, 4), Lstm(5), LastStep(), Dense(COUNT)], input_shape=(None,))
DRAWN: dict[str, Any] = {"temperature": 2.0, "seed": 7, "stop": 3}


def model(network: Network = STEPPED, **params: Any) -> DeepModel:
    return a_model(DeepModel, network, **{"batchSize": 4, "featuresCol": "prompt", **params})


def frame(spark: SparkSession, prompts: Any, partitions: int = 1) -> DataFrame:
    rows = spark.createDataFrame(list(enumerate(prompts)), "id int, prompt array<int>")
    return rows.repartition(partitions) if partitions > 1 else rows.coalesce(1)


def found(made: DataFrame) -> dict[int, Any]:
    return {row.id: row.generated for row in made.collect()}


@pytest.mark.parametrize(("network", "partitions"), [(STEPPED, 1), (WHOLE, 3)], ids=["steps", "whole"])
def test_rows_go_on_as_the_network_does_however_they_are_partitioned(
    spark: SparkSession, network: Network, partitions: int
) -> None:
    trained = model(network)
    made = trained.generate(frame(spark, PROMPTS, partitions), 5, topK=4, topP=0.9, **DRAWN)
    assert made.columns == ["id", "prompt", "generated"]
    assert made.schema["generated"].dataType.simpleString() == "array<int>"
    values, lengths = RaggedRows.of(PROMPTS).padded()
    drawn: Any = network.generate(trained.weights, Ragged(values, lengths), 5, top_k=4, top_p=0.9, **DRAWN)
    expected = [row[:count].tolist() for row, count in zip(drawn.values, drawn.lengths, strict=True)]
    assert found(made) == dict(enumerate(expected))
    assert len({len(row) for row in expected}) > 1


def test_rows_that_cannot_be_used_are_named_null_or_left_out(spark: SparkSession) -> None:
    rows = frame(spark, [[1, 2], None, [], [COUNT], [4]])
    kept = found(model(handleInvalid="keep").generate(rows, 3))
    assert {at for at, row in kept.items() if row is None} == {1, 2, 3}
    assert len(kept[0]) == len(kept[4]) == 3
    assert found(model(handleInvalid="skip").generate(rows, 3)) == {at: kept[at] for at in (0, 4)}
    for bad, sentence in (([], "featuresCol 'prompt' holds an empty row, which nothing"), ([COUNT], "received 6")):
        with pytest.raises(PythonException, match=f"ValueError: .*{sentence}"):
            model().generate(frame(spark, [bad]), 3).collect()


def test_rows_without_room_for_what_is_to_come_cannot_be_used(spark: SparkSession) -> None:
    """A model whose network attends goes on with the others as the network does, by keys and values that it keeps."""
    trained = model(models.gpt2(COUNT, size=8, blocks=1, heads=2, length=6), handleInvalid="keep")
    rows = frame(spark, [[1, 2], [3, 4, 5, 1, 2], [4, 0, 1, 2]])
    made = found(trained.generate(rows, 3, seed=1))
    assert made[1] is None
    for at, prompt in ((0, [1, 2]), (2, [4, 0, 1, 2])):
        assert made[at] == trained.getNetwork().generate(trained.weights, prompt, 3, seed=1).tolist()
    strict = trained.copy().setHandleInvalid("error")
    with pytest.raises(PythonException, match="a row of 5 integers, .* at most 4 where steps=3, .* set maxLength to 4"):
        strict.generate(rows, 3).collect()
    assert len(found(strict.setMaxLength(4).generate(rows, 3))) == 3
    with pytest.raises(ValueError, match="steps of generate must be at most 6"):
        strict.generate(rows, 7)


def test_what_cannot_go_on_is_refused_before_a_job(spark: SparkSession) -> None:
    rows = frame(spark, PROMPTS)
    with pytest.raises(ValueError, match="topK of generate must be an integer from 1 to 6, received 7"):
        model().generate(rows, 3, topK=7)
    with pytest.raises(ValueError, match="topP of generate must be a number above 0 and up to 1, received -1"):
        model().generate(rows, 3, topP=-1)
    with pytest.raises(ValueError, match="prompt"):
        model().generate(rows, 3, outputCol="prompt")
    with pytest.raises(ValueError, match="generate expects a network of one output that reads rows of any number"):
        a_model(DeepModel).generate(rows, 3)
    with pytest.raises(TypeError, match="generate"):
        model().generate([[1, 2]], 3)  # type: ignore[arg-type]
