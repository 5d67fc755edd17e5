"""Models as SQL functions: `SELECT classify(image) FROM photos`; tokenizers, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.ml import Model
from pyspark.sql import Column, SparkSession

from sparkdl.scoring.heads import Head
from sparkdl.scoring.inference import Batch
from sparkdl.spark.driver.arrow_udf import arrow_udf
from sparkdl.spark.driver.columns import layouts_of
from sparkdl.spark.pipelines import scoring_stage
from sparkdl.spark.scoring import RowScoring, result_type
from sparkdl.spark.tasks.row_scores import results
from sparkdl.spark.tasks.tokenizing import check_argument
from sparkdl.spark.text.detokenizer import Detokenizer
from sparkdl.spark.text.held_tokenizer import HoldsTokenizer

OUTPUTS = ("rawPrediction", "probability", "prediction")  # each a Param of that name and "Col"


def register_function(
    spark: SparkSession, name: str, model: RowScoring | HoldsTokenizer | Model, output: str | None = None
) -> Callable[..., Column]:
    """Make a model, or a tokenizer, a function of SQL, for as long as the session lives.

    Parameters
    ----------
    spark : SparkSession
        Of either kind, classic or Connect.
    name : str
        The function's name in SQL. A function that has it already is replaced, unless it is Spark's own.
    model : DeepModel, PipelineModel, CrossValidatorModel or TrainValidationSplitModel
        Such as a DeepClassificationModel. Of a pipeline, its last stage is taken; where a VectorAssembler makes what
        that reads, the function takes the assembler's columns. Of a tuned model, the best is taken. A TokenizerModel
        makes a function from a string to its ids, array<int>, and a Detokenizer one back.
    output : str, optional
        What a model's function gives: its "prediction", as it does unless told otherwise (double; an array for several
        outputs), or, of a classifier, its "probability" or "rawPrediction" (arrays, as SQL knows no Vectors), whatever
        columns they are named for. Of a network with several outputs "prediction_NAME" or "probability_NAME".

    Returns
    -------
    callable
        The function for DataFrames: ``classify("image")`` is a Column.

    Raises
    ------
    ValueError
        The model has no such output, its `handleInvalid` is skip, or another stage of the pipeline makes what it reads;
        or `output` is given for a tokenizer.

    Notes
    -----
    The function takes what `featuresCol` may hold, or one argument for each of `featuresCols`. With `handleInvalid` set
    to keep it gives null for what cannot be used, otherwise such a row fails the query.

    Spark may evaluate it twice for a row where a query filters by its result and shows it, too; `transform` does not.
    Vectors that come straight from Parquet fail in Spark 4.3 (UNSUPPORTED_DATATYPE) unless
    ``spark.sql.execution.arrow.pythonUDF.columnarInput.enabled`` is false.

    Examples
    --------
    >>> from sparkdl import DeepClassifier, Network, register_function
    >>> from sparkdl.layers import Dense
    >>> rows = spark.createDataFrame([([0.0], 0), ([1.0], 1)] * 30, ["features", "label"])
    >>> network = Network([Dense(2)], input_shape=(1,))
    >>> model = DeepClassifier(network=network, optimizer="adam", stepSize=0.1, maxIter=30).fit(rows)
    >>> classify = register_function(spark, "classify", model)
    >>> spark.sql("SELECT classify(array(0.0)), classify(array(1.0))").first()[:]
    (0.0, 1.0)
    """
    if isinstance(model, HoldsTokenizer):
        if output is not None:
            raise ValueError(
                f"output goes with models of networks, but a {type(model).__name__} has one result, received "
                f"{output!r}; leave it out."
            )
        return _of_tokenizer(spark, name, model)
    output = "prediction" if output is None else output
    model = scoring_stage(model)
    if model.getHandleInvalid() == "skip":
        raise ValueError(
            "handleInvalid is skip, but a function has a result for every row; set it to keep, for null, or to error."
        )
    head = _head(model, output)
    scoring = model._scoring(layouts_of(spark, model), {})
    weights, columns = model._sent(spark), scoring.columns

    def checked(batch: Batch) -> Batch:
        if len(batch) != len(columns):
            raise ValueError(f"Call it as {name}({', '.join(columns)}), received {len(batch)} arguments.")
        return batch

    def predict(batches: Iterator[Batch]) -> Iterator[pa.Array]:
        return results(map(checked, batches), scoring, weights, {output: head})

    return spark.udf.register(name, arrow_udf(predict, result_type(scoring, head.is_list, head.output)))


def _of_tokenizer(spark: SparkSession, name: str, stage: HoldsTokenizer) -> Callable[..., Column]:
    """The function of a TokenizerModel or a Detokenizer."""
    (work, kind), lists = stage._work(spark), isinstance(stage, Detokenizer)
    column = stage.getInputCol() if stage.isDefined(stage.inputCol) else "ids" if lists else "text"
    call = f"{name}({column})"

    def checked(batches: Iterator[Batch]) -> Iterator[pa.Array]:
        return work(check_argument(batch, call, lists) for batch in batches)

    return spark.udf.register(name, arrow_udf(checked, kind))


def _head(model: RowScoring, output: str) -> Head:
    """The model's head for this output (see `heads.py`)."""
    named = model.copy({model.predictionCols: {}, model.probabilityCols: {}})
    for each in OUTPUTS:
        if named.hasParam(f"{each}Col"):
            named.set(named.getParam(f"{each}Col"), each)
    heads = named._heads()
    if output not in heads:
        losses = ", ".join(type(loss).__name__ for loss in model._objective().losses.values())
        raise ValueError(
            f"output must be {' or '.join(heads)} for a {type(model).__name__} with {losses}, received {output!r}."
        )
    return heads[output]
