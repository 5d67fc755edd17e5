"""Networks from the schema of a DataFrame: what one pass learns of its columns, and that the estimator takes them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from pyspark.ml.feature import StringIndexer
from pyspark.sql import DataFrame, SparkSession

from sparkdl import DeepClassificationModel, DeepClassifier, Network, models
from sparkdl.layers import Dense, Embedding, HashedEmbedding, Normalization

RANDOM = np.random.default_rng(12)
ROWS = 400


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Rows whose class depends on a string, a number of a category, and an amount of large mean."""
    city = RANDOM.integers(0, 6, ROWS)
    rooms = RANDOM.integers(0, 4, ROWS)
    amount = RANDOM.normal(size=ROWS)
    return pd.DataFrame(
        {
            "city": [f"city {each}" for each in city],
            "rooms": rooms,
            "amount.eur": 50_000 + 9_000 * amount,
            "same": 3.0,
            "label": ((city % 2 * 2 - 1) + (rooms > 1) + amount > 0.3).astype(int),
        }
    )


@pytest.fixture(scope="module")
def rows(spark: SparkSession, table: pd.DataFrame) -> DataFrame:
    return spark.createDataFrame(table).withColumnRenamed("amount.eur", "amount").cache()


@pytest.mark.parametrize(
    ("network", "options"),
    [
        ("wide_and_deep", {"units": (16,), "crosses": [("city", "rooms")], "cross_rows": 64}),
        ("mlp", {"units": (16,)}),
        ("tabular_resnet", {"width": 16, "hidden": 16, "blocks": 1}),
        ("dlrm", {"size": 8, "bottom": (16,), "top": (16,)}),
        ("ft_transformer", {"size": 8, "heads": 2, "blocks": 1, "attention_dropout": 0.0}),
    ],
)
def test_a_network_from_the_schema_learns(rows: DataFrame, network: str, options: dict[str, object]) -> None:
    graph, columns = models.tabular(rows, ["city", "rooms"], ["amount", "same"], 2, network, **options)
    assert columns == {"city": "city", "rooms": "rooms", "numbers": ["amount", "same"]}
    classifier = DeepClassifier(
        network=graph, featuresCols=columns, optimizer="adam", stepSize=0.02, maxIter=20, batchSize=50
    )
    assert classifier.fit(rows).evaluate(rows).accuracy > 0.93


def test_means_and_variances_lie_in_the_weights_of_a_saved_model(
    rows: DataFrame, table: pd.DataFrame, tmp_path: object
) -> None:
    layer = models.normalization(rows, ["amount", "same"])
    numbers = table[["amount.eur", "same"]]
    np.testing.assert_allclose(layer.mean, numbers.mean(), rtol=1e-12)
    np.testing.assert_allclose(layer.variance, numbers.var(ddof=0), rtol=1e-9)
    network = Network([layer, Dense(2)], input_shape=(2,))
    classifier = DeepClassifier(network=network, featuresCols=["amount", "same"], maxIter=2, stepSize=0.5)
    classifier.fit(rows).write().overwrite().save(f"{tmp_path}/model")
    loaded = DeepClassificationModel.load(f"{tmp_path}/model")
    np.testing.assert_allclose(loaded.weights["normalization_0"]["mean"], numbers.mean(), rtol=1e-6)


def test_what_a_string_indexer_counted_is_taken(rows: DataFrame) -> None:
    indexed = StringIndexer(inputCol="city", outputCol="index").fit(rows).transform(rows).limit(3)
    graph, _ = models.tabular(indexed, ["index", "city"], network="mlp")
    table, strings = (graph.nodes[f"vector_{name}"][0] for name in ("index", "city"))
    assert isinstance(table, Embedding) and (table.rows, table.unknown) == (6, True)
    assert isinstance(strings, HashedEmbedding) and strings.rows == 4096


def test_columns_may_be_called_like_one_another_and_like_the_nodes(spark: SparkSession) -> None:
    named = spark.sql("select 1 as `a.b`, 'x' as a_b, 2 as deep, 3 as class, 1.0 as numbers, 4.0 as joined")
    graph, columns = models.tabular(named, ["a.b", "a_b", "deep", "a_b"], ["numbers"])
    assert columns == {"a_b": "a.b", "a_b_": "a_b", "deep_": "deep", "numbers": ["numbers"]}
    assert graph.inputs.keys() == columns.keys()
    crosses = [("a_b", "deep"), ("a.b", "deep")]
    crossed = models.tabular(named, ["a.b", "a_b", "deep"], crosses=crosses).network
    assert [crossed.nodes[f"cross_{name}"][1:] for name in ("a_b__deep_", "a_b_deep_")] == [
        ("a_b_", "deep_"),
        ("a_b", "deep_"),
    ]
    graph, columns = models.tabular(named, ["class", "numbers", "joined"], network="ft_transformer")
    assert columns == {"class_": "class", "numbers_": "numbers", "joined": "joined"}
    built = spark.sql("select 1 as block_0, 2 as wide_numbers, 1.0 as x")
    for network, renamed in (("ft_transformer", "block_0"), ("wide_and_deep", "wide_numbers")):
        columns = models.tabular(built, ["block_0", "wide_numbers"], ["x"], network=network).columns
        assert columns.pop(f"{renamed}_") == renamed and len(columns) == 2


def test_names_of_columns_may_hold_what_sql_reads_otherwise(spark: SparkSession) -> None:
    strange = spark.sql("select id as `i``d`, concat('x', id) as `s``t`, double(id) as `n.``n` from range(4)")
    columns = models.tabular(strange, ["i`d", "s`t"], ["n.`n"]).columns
    assert columns == {"i_d": "i`d", "s_t": "s`t", "numbers": ["n.`n"]}
    assert models.normalization(strange, ["n.`n"]) == Normalization((1.5,), (1.25,))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"categorical": ["town"]}, "categorical names column 'town', which is not there; the columns are city,"),
        ({"numeric": ["city"]}, "numeric must name columns of numbers, received 'city' of type string"),
        ({"categorical": ["amount"]}, "categorical column 'amount' must hold whole numbers, received fractions"),
        ({}, "categorical and numeric must name at least one column"),
        ({"numeric": ["same"], "network": "transformer"}, "network must be one of wide_and_deep, dlrm, mlp"),
    ],
)
def test_columns_that_will_not_do_are_refused(rows: DataFrame, given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        models.tabular(rows, **given)  # type: ignore[arg-type]


def test_neither_null_nor_nan_counts_as_a_category(spark: SparkSession) -> None:
    holes = spark.sql("select * from values (0D, 0D), (4D, 4D), (2D, null), (double('NaN'), 1D) as t(day, shop)")
    graph, _ = models.tabular(holes, ["day", "shop"], network="mlp")
    assert [graph.nodes[f"vector_{name}"][0].rows for name in ("day", "shop")] == [5, 5]


def test_columns_without_usable_numbers_are_refused(spark: SparkSession) -> None:
    bad = spark.range(2).selectExpr(
        *("cast(null as double) as gone", "double('inf') as endless", "-1 as below", "3000000000 + id as key"),
        *("id * 1e20 as wei", "id * 1e-21 as moles"),
    )
    for given, message in (
        ({"numeric": ["gone"]}, "numeric column 'gone' must hold finite numbers, received nothing but nulls"),
        ({"categorical": ["endless"]}, "categorical column 'endless' must hold whole numbers, received infinite ones"),
        ({"numeric": ["endless"]}, "numeric column 'endless' must hold finite numbers, received infinite ones"),
        (
            {"numeric": ["wei"]},
            "numeric column 'wei' must hold numbers whose variance float32 holds, received 2.5e[+]39",
        ),
        ({"numeric": ["moles"]}, "numeric column 'moles' must hold numbers .* received 2.5e-43; scale it"),
        ({"categorical": ["key"]}, "categorical column 'key' must hold numbers that int32 holds, received 300000000"),
        ({"categorical": ["below"]}, "categorical column 'below' must hold numbers from 0, received -1"),
    ):
        with pytest.raises(ValueError, match=message):
            models.tabular(bad, **given)  # type: ignore[arg-type]
