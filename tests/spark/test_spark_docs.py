"""The examples in the docstrings of the Spark stages run as they are printed."""

from __future__ import annotations

import doctest

import pytest
from pyspark.sql import SparkSession

from sparkdl import DeepClassifier, DeepEstimator, DeepRegressor


@pytest.mark.parametrize("stage", [DeepClassifier, DeepEstimator, DeepRegressor])
def test_the_example_gives_what_it_says(spark: SparkSession, stage: type) -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(stage, globs={"spark": spark})
    results = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST).run(example)
    assert results.attempted > 3
    assert results.failed == 0
