"""Columns of strings that are split, and looked up or hashed: learned, trained on and scored alike in every form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_cases import arrays, same_bits

from sparkdl import DeepClassificationModel, DeepClassifier, Graph, Network, models, register_function, training
from sparkdl.layers import (
    Concatenate,
    Dense,
    Embedding,
    EmbeddingBag,
    HashedEmbedding,
    HashedEmbeddingBag,
    LastStep,
    SimpleRnn,
    Vocabulary,
)
from sparkdl.weights import named_arrays

COUNT = 60
LINES = [" ".join(["Fine!", "so-so", "BAD"][(at + word) % 3] for word in range(at % 4)) for at in range(COUNT)]
WORDS = ["fine", "!", "so", "-", "bad"]
SPLIT = [line.lower().replace("!", " !").replace("-", " - ").split() for line in LINES]
LABELS = [int("bad" in line) for line in SPLIT]


def network(**params: Any) -> Network:
    table = Embedding(len(WORDS), 3, vocabulary=Vocabulary(WORDS, split="word"), **params)
    return Network([table, SimpleRnn(4), LastStep(), Dense(2)], input_shape=(None,))


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    numbers = [[WORDS.index(word) for word in words] for words in SPLIT]
    values = list(zip(range(COUNT), LINES, SPLIT, numbers, LABELS, strict=True))
    schema = "id int, line string, words array<string>, numbers array<int>, label int"
    return spark.createDataFrame(values, schema).repartition(3).cache()


def classifier(**params: Any) -> DeepClassifier:
    given = {"network": network(), "featuresCol": "line", "optimizer": "adam", "stepSize": 0.1, "batchSize": 30}
    return DeepClassifier(**{**given, "maxIter": 2, **params})


@pytest.fixture(scope="module")
def model(rows: DataFrame) -> DeepClassificationModel:
    return classifier(maxIter=12).fit(rows)


def test_text_its_words_and_their_numbers_train_to_the_same_bits_and_to_those_of_one_process(rows: DataFrame) -> None:
    first, *others = (classifier(featuresCol=name).fit(rows) for name in ("line", "words", "numbers"))
    assert all(same_bits(arrays(first), arrays(other)) for other in others)
    table: Any = network().layers[0]
    given: dict[str, Any] = {
        "optimizer": "adam",
        "step_size": 0.1,
        "batch_size": COUNT,
        "epochs": 2,
        "dtype": "float64",
    }
    alone = training.fit(network(), (table.vocabulary.look_up(LINES), np.array(LABELS)), **given)
    spread = classifier(batchSize=COUNT, computeDtype="float64").fit(rows)
    expected = dict(named_arrays(alone.weights))
    for name, array in arrays(spread).items():
        np.testing.assert_allclose(array, expected[name], rtol=0, atol=1e-12, err_msg=name)


def test_a_model_reads_text_wherever_it_scores(
    spark: SparkSession, rows: DataFrame, model: DeepClassificationModel, tmp_path: Path
) -> None:
    model.save(str(tmp_path / "model"))
    loaded = DeepClassificationModel.load(str(tmp_path / "model"))
    assert loaded.getNetwork() == network()
    names = ("id", "rawPrediction", "prediction")
    of_numbers = model.copy().setFeaturesCol("numbers")
    expected = of_numbers.transform(rows).select(*names).orderBy("id").collect()
    assert np.mean([row.prediction == label for row, label in zip(expected, LABELS, strict=True)]) > 0.9
    for name in ("line", "words"):
        assert loaded.setFeaturesCol(name).transform(rows).select(*names).orderBy("id").collect() == expected
    losses = [each.score_rows(rows).select("id", "loss").orderBy("id").collect() for each in (model, of_numbers)]
    assert losses[0] == losses[1]
    assert model.evaluate(rows).to_json() == of_numbers.evaluate(rows).to_json()
    register_function(spark, "is_bad", loaded)
    called = rows.selectExpr("id", "is_bad(line) as found").orderBy("id").collect()
    assert [row.found for row in called] == [row.prediction for row in expected]
    rows.select("id", "line").write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema("id int, line string").parquet(str(tmp_path / "rows"))
    sink = model.transform(stream).writeStream.format("memory").queryName("lines").trigger(availableNow=True)
    assert sink.option("checkpointLocation", str(tmp_path / "at")).start().awaitTermination(60)
    assert spark.table("lines").select(*names).orderBy("id").collect() == expected


# By id: null, a word and a sign that the vocabulary lacks; and an empty line and one of white space, which are rows.
STRANGE = {3: "null", 4: "'Fine weather'", 5: "'fine?'", 6: "''", 7: "'  '"}


def test_lines_that_cannot_be_used_go_where_handle_invalid_says(
    rows: DataFrame, model: DeepClassificationModel
) -> None:
    line = F.col("line")
    for at, value in STRANGE.items():
        line = F.when(F.col("id") == at, F.expr(value)).otherwise(line)
    strange = rows.withColumn("line", line)
    kept = model.copy().setHandleInvalid("keep").transform(strange)
    assert [row.id for row in kept.where("prediction is null").orderBy("id").collect()] == [3, 4, 5]
    skipping = classifier(handleInvalid="skip").fit(strange)
    assert skipping.summary.skipped == {"null": 1, "no category": 2}
    message = "featuresCol 'line' must hold strings that the vocabulary of .* 'embedding_0' has, received 'weather'; "
    with pytest.raises(ValueError, match=message + r".*unknown=True, as in the row \(line: 'Fine weather'"):
        classifier(numWorkers=1).fit(strange.where("id in (1, 2, 4)"))
    with pytest.raises(Exception, match=message):
        model.transform(strange.where("id = 4")).collect()
    sharing = classifier(network=network(unknown=True), maxIter=0).fit(strange.where("id != 3"))
    found = sharing.transform(
        strange.sparkSession.createDataFrame([("fine ?",), ("fine weather",)], ["line"])
    ).collect()
    assert found[0].rawPrediction == found[1].rawPrediction
    assert sharing.weights is not None and sharing.weights["embedding_0"]["table"].shape == (len(WORDS) + 1, 3)


def test_hashed_words_and_characters_are_those_of_arrays(spark: SparkSession, rows: DataFrame) -> None:
    letters = [sorted(set("".join(LINES))), LINES]
    graph = Graph(
        inputs={"words": (None,), "letters": (None,)},
        nodes={
            "a": (HashedEmbeddingBag(50, 2, split="word"), "words"),
            "b": (EmbeddingBag(len(letters[0]), 2, vocabulary=Vocabulary(letters[0], split="character")), "letters"),
            "both": (Concatenate(), "a", "b"),
            "kind": (Dense(2), "both"),
        },
        outputs="kind",
    )
    columns = {"words": "line", "letters": "line"}
    given: dict[str, Any] = {"network": graph, "featuresCol": None, "maxLength": {"letters": 6}, "maxIter": 1}
    split = classifier(**given, featuresCols=columns).fit(rows)
    apart = rows.withColumn(
        "each", F.when(F.length("line") > 0, F.split("line", "")).otherwise(F.array().cast("array<string>"))
    )
    before = split.copy().setFeaturesCols({"words": "words", "letters": "each"})
    found = [each.transform(apart).select("id", "rawPrediction").orderBy("id").collect() for each in (split, before)]
    assert found[0] == found[1] and len({row.rawPrediction for row in found[0]}) > 5
    assert split.summary.truncated == {"letters": sum(len(line) > 6 for line in LINES)}


def test_a_vocabulary_is_that_of_the_rows_however_they_are_partitioned(spark: SparkSession, rows: DataFrame) -> None:
    counts: dict[str, int] = {}
    for word in (word for words in SPLIT for word in words):
        counts[word] = counts.get(word, 0) + 1
    expected = sorted(counts, key=lambda word: (-counts[word], word))
    found = models.vocabulary(rows, "line", split="word")
    assert found == Vocabulary(expected, split="word")
    assert (
        models.vocabulary(rows.orderBy("label").coalesce(1), "line", split="word", size=3).entries == found.entries[:3]
    )
    few = min(counts.values()) + 1
    assert models.vocabulary(rows, "words", least=few).entries == tuple(w for w in expected if counts[w] >= few)
    odd = spark.createDataFrame([("b",), ("é",), ("a",), (None,), ("",), ("b",)], "`a.b` string")
    assert models.vocabulary(odd, "a.b") == Vocabulary(["b", "", "a", "é"])
    assert models.vocabulary(odd, "a.b", split="character").entries == ("b", "a", "é")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"column": "text"}, "vocabulary reads column 'text', which is not there; the columns are id, line,"),
        ({"column": "label"}, "vocabulary reads columns of string or array<string>, received 'label' of type int"),
        ({"column": "line", "size": 0}, "size of vocabulary must be a positive integer, received 0"),
        ({"column": "line", "least": True}, "least of vocabulary must be a positive integer, received True"),
        (
            {"column": "line", "split": "line"},
            "split of Vocabulary must be 'word', 'character' or None, received 'line'",
        ),
        ({"column": "line", "least": 999}, "Column 'line' holds no string 999 times or more"),
    ],
)
def test_what_makes_no_vocabulary_is_refused(rows: DataFrame, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        models.vocabulary(rows, **arguments)


@pytest.mark.parametrize(
    ("shape", "layer", "message"),
    [
        (
            (None,),
            EmbeddingBag(5, 2, vocabulary=WORDS),
            r"must be one column of arrays .* received string; give the lay",
        ),
        ((), HashedEmbedding(5, 2, split="word"), r"holds strings in parts, words, to fill .* input_shape \(\), which"),
        ((None,), EmbeddingBag(5, 2), "must be numeric or .*, received string; cast it"),
    ],
)
def test_networks_that_cannot_read_text_refuse_it(rows: DataFrame, shape: Any, layer: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"featuresCol 'line' {message}"):
        classifier(network=Network([layer, Dense(2)], input_shape=shape)).fit(rows)
