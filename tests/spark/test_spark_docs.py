"""The examples in the docstrings of the Spark stages and functions run as they are printed."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkdl import DeepClassifier, DeepEstimator, DeepRegressor, load, models, register_function
from sparkdl.series import SeriesWindows
from sparkdl.text import Tokenizer

DOCUMENTED = [
    DeepClassifier,
    DeepEstimator,
    DeepRegressor,
    SeriesWindows,
    Tokenizer,
    load,
    models.vocabulary,
    register_function,
]


@pytest.mark.parametrize("documented", DOCUMENTED)
def test_the_example_gives_what_it_says(spark: SparkSession, documented: Any) -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(documented, globs={"spark": spark})
    results = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST).run(example)
    assert results.attempted > 3
    assert results.failed == 0
