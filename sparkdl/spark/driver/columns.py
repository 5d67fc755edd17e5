"""The columns that a user has: which types are taken, and as what Catalyst hands them to the workers, to be decoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegralType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparkdl.decoding.images import require_pillow
from sparkdl.decoding.labels import LabelPart
from sparkdl.decoding.layout import MOST_PIXELS, PIXELS_SETTING, Layout
from sparkdl.decoding.names import quoted
from sparkdl.scoring.input_layouts import Reading
from sparkdl.spark.driver.catalyst import pack_column
from sparkdl.spark.driver.remote import count_setting, setting

LEAST_WIDTH = 64  # of arrays and Vectors that are sent as bytes; shorter ones take Spark no longer value by value

if TYPE_CHECKING:
    from sparkdl.spark.params.params import DeepParams


class ColumnType(NamedTuple):
    """A type of column.

    Attributes
    ----------
    accepts : callable
        Whether a Spark type is of this one.
    sent : callable
        The column, of such a type, as an Arrow UDF can be given it.
    """

    accepts: Callable[[DataType], bool]
    sent: Callable[[Column, DataType], Column]


class Inputs(NamedTuple):
    """Features to be read.

    Attributes
    ----------
    columns : dict of Column
        features/NAME/0, features/NAME/1, ... for the part of that name.
    layouts : dict of Layout
        By part.
    dtypes : dict of str
        By part, of the decoded features: uint8, int32, float32 or float64.
    """

    columns: dict[str, Column]
    layouts: dict[str, Layout]
    dtypes: dict[str, str]


def _is_number(kind: DataType) -> bool:
    return isinstance(kind, (NumericType, BooleanType))


def _is_string(kind: DataType) -> bool:
    return isinstance(kind.elementType if isinstance(kind, ArrayType) else kind, StringType)


def _is_integer_list(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and isinstance(kind.elementType, IntegralType)


def _depth(kind: DataType) -> int:
    """How deep arrays of numbers are nested, a Vector in one being an array; 0 for other types."""
    if not isinstance(kind, ArrayType):
        return 0
    if _is_number(kind.elementType):
        return 1
    return 2 if isinstance(kind.elementType, VectorUDT) else (depth + 1 if (depth := _depth(kind.elementType)) else 0)


def _holds_vectors(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and (isinstance(kind.elementType, VectorUDT) or _holds_vectors(kind.elementType))


def _is_image(kind: DataType) -> bool:
    fields = {"height", "width", "nChannels", "mode", "data"}
    return isinstance(kind, StructType) and fields <= set(kind.names) and isinstance(kind["data"].dataType, BinaryType)


def _without_decimals(kind: DataType) -> DataType:
    if isinstance(kind, ArrayType):
        return ArrayType(_without_decimals(kind.elementType), kind.containsNull)
    return DoubleType() if isinstance(kind, DecimalType) else kind


def _as_it_is(column: Column, kind: DataType) -> Column:
    return column


def _cast(column: Column, kind: DataType) -> Column:
    """Decimals as double, which Arrow rounds otherwise than Spark."""
    plain = _without_decimals(kind)
    return column if plain == kind else column.cast(plain)


def _vector(column: Column, kind: DataType) -> Column:
    """A Vector as its struct, with no indices rather than null for a dense one.

    After every row Spark asks how large its Arrow batch has become, and Arrow then goes over all nulls that follow the
    last list: of 10,000 dense Vectors of 784 values each cost half as much again.
    """
    fields = F.unwrap_udt(column)
    return fields.withField("indices", F.coalesce(fields["indices"], F.expr("cast(array() as array<int>)")))


def _vectors(column: Column, kind: DataType) -> Column:
    """Arrays of Vectors as arrays of their structs."""
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda item: _vectors(item, kind.elementType))
    return _vector(column, kind)


# One entry a column type. What Arrow makes of it has its decoder in `sparkdl/decoding`.
NUMBER = {"numeric": ColumnType(_is_number, _cast)}
LISTS = {
    "array<numeric>": ColumnType(lambda kind: _depth(kind) == 1, _cast),
    "Vector": ColumnType(lambda kind: isinstance(kind, VectorUDT), _vector),
}
STRINGS = {"string or array<string>": ColumnType(_is_string, _as_it_is)}  # of inputs whose layers say how to read them
TEXTS = {"string": ColumnType(lambda kind: isinstance(kind, StringType), _as_it_is)}  # of tokenizers
IDS = {"array of whole numbers": ColumnType(_is_integer_list, _as_it_is)}
LABELS = NUMBER | LISTS  # also of featuresCols
# One label or a list of them for each step, of networks that end in a prediction for each.
STEP_LABELS = {
    "array<numeric>": ColumnType(lambda kind: _depth(kind) == 1, _cast),
    "array<array<numeric>>": ColumnType(lambda kind: _depth(kind) == 2, _cast),
}
# Labels of which a row has as many groups as it likes, such as boxes.
GROUPED_LABELS = LISTS | {"array<array<numeric>>": STEP_LABELS["array<array<numeric>>"]}
TIMES = {
    "date": ColumnType(lambda kind: isinstance(kind, DateType), _as_it_is),
    "timestamp": ColumnType(lambda kind: isinstance(kind, (TimestampType, TimestampNTZType)), _as_it_is),
    "numeric": ColumnType(lambda kind: isinstance(kind, NumericType), _as_it_is),
}
KEYS = {
    "string": ColumnType(lambda kind: kind == StringType(), _as_it_is),  # of no other collation, whose keys mix
    "numeric": ColumnType(_is_number, _as_it_is),
    "date": TIMES["date"],
    "timestamp": TIMES["timestamp"],
    "binary": ColumnType(lambda kind: isinstance(kind, BinaryType), _as_it_is),
}
FEATURES = LABELS | {
    "nested arrays": ColumnType(lambda kind: _depth(kind) > 1 and not _holds_vectors(kind), _cast),
    "array<Vector>": ColumnType(_holds_vectors, _vectors),
    "binary": ColumnType(lambda kind: isinstance(kind, BinaryType), _as_it_is),
    "image": ColumnType(_is_image, _as_it_is),
}

# Labels of the positions of an image.
MASKS = {"array<array<numeric>>": STEP_LABELS["array<array<numeric>>"]} | {
    name: FEATURES[name] for name in ("binary", "image")
}


def features(dataset: DataFrame, stage: DeepParams) -> Inputs:
    """The features that a stage reads, of one column or several.

    Raises
    ------
    ValueError
        A column is missing or of another type, columns of numbers are too few or too many for the network's rows,
        arrays are nested deeper than those, there are images but the network takes none, or featuresCol and
        featuresCols are both set.
    ImportError
        Pillow is needed and missing.
    """
    inputs = Inputs({}, layouts_of(dataset.sparkSession, stage), {})
    for name, layout in inputs.layouts.items():
        sent, inputs.dtypes[name] = _part(dataset, layout)
        inputs.columns.update({f"features/{name}/{at}": column for at, column in enumerate(sent)})
    return inputs


def _part(dataset: DataFrame, layout: Layout) -> tuple[list[Column], str]:
    """The columns of a part of the features, and the dtype of what they are decoded to."""
    kinds = (LABELS if layout.joined else FEATURES) | (STRINGS if layout.strings else {})
    sent = [_sent(dataset, name, layout.param, kinds) for name in layout.names]
    found = [dataset.schema[name].dataType for name in layout.names]
    _check_shape(found, layout)
    pixels = isinstance(found[0], BinaryType) or _is_image(found[0])
    if layout.width >= len(found) * LEAST_WIDTH and not any(map(_is_string, found)):
        each = zip(layout.names, sent, found, strict=True)
        sent = [pack_column(dataset.sparkSession, _column(name), column, kind) for name, column, kind in each]
    return sent, "uint8" if pixels else layout.dtype


def layouts_of(session: SparkSession, stage: DeepParams) -> dict[str, Layout]:
    """What the features that a stage reads are to become, by part.

    Raises
    ------
    ValueError
        featuresCol and featuresCols are both set, maxLength fits no input, or a setting of the session is none.
    """
    reading = Reading(
        features_col=stage.getFeaturesCol(),
        features_cols=stage.getFeaturesCols(),
        binary=stage.getBinaryFormat(),
        resize=stage.getImageResize(),
        max_length=stage.getMaxLength(),
        truncation_side=stage.getTruncationSide(),
        dtype=stage.getComputeDtype(),
    )
    layouts = reading.layouts(stage.getNetwork())
    for part, layout in layouts.items():
        most = count_setting(session, PIXELS_SETTING, MOST_PIXELS) if layout.pixels else MOST_PIXELS
        layouts[part] = replace(layout, most_pixels=most)
    return layouts


def labels(dataset: DataFrame, part: LabelPart, param: str = "labelCol") -> tuple[Column, bool]:
    """The label column, and whether it holds several labels a row, or a step; ValueError if its type is another."""
    kinds = STEP_LABELS if part.follows else GROUPED_LABELS if part.group else LABELS
    column = _sent(dataset, part.column, param, kinds | MASKS if part.mask else kinds)
    kind = dataset.schema[part.column].dataType
    if part.mask and part.mask.resize != "error" and (_is_image(kind) or isinstance(kind, BinaryType)):
        require_pillow(f"{param} {part.column!r} with imageResize")
    return column, not _is_number(kind) and not (part.follows and _depth(kind) == 1)


def numbers(dataset: DataFrame, name: str, param: str) -> Column:
    """A column of numbers or booleans: row weights, validation rows."""
    return _sent(dataset, name, param, NUMBER)


def key(dataset: DataFrame, name: str, param: str) -> Column:
    """A column whose values tell series apart."""
    return _sent(dataset, name, param, KEYS)


def time(dataset: DataFrame, name: str, param: str) -> Column:
    """A column of times."""
    return _sent(dataset, name, param, TIMES)


def texts(dataset: DataFrame, name: str, param: str) -> Column:
    """A column of strings, for a tokenizer."""
    return _sent(dataset, name, param, TEXTS)


def token_ids(dataset: DataFrame, name: str, param: str) -> Column:
    """A column of arrays of whole numbers, which a tokenizer has made."""
    return _sent(dataset, name, param, IDS)


def predictions(dataset: DataFrame, name: str, param: str) -> Column:
    """A column of arrays or Vectors of numbers, as arrays."""
    sent, column = _sent(dataset, name, param, LISTS), _column(name)
    if isinstance(dataset.schema[name].dataType, VectorUDT):
        return F.when(column.isNotNull(), vector_to_array(column))  # which fails for null
    return sent


def in_rows(dataset: DataFrame) -> DataFrame:
    """The dataset, whose Vectors come as rows: Spark 4.3 fails to hand those of a Parquet file to an Arrow UDF.

    Its vectorized reader feeds the UDF's columns directly, and has no Arrow type for a user-defined one. A choice
    between a Vector and itself, which Spark cannot know to be none, makes rows of the columns, and costs nothing where
    no Vector is read.
    """
    either, names = F.spark_partition_id() >= 0, [name.lower() for name in dataset.columns]
    vectors = {field.name: field.metadata for field in dataset.schema if '"type":"udt"' in field.json()}
    if any(names.count(name.lower()) > 1 for name in vectors):  # as a join may leave them
        return dataset.where(either)
    chosen = {name: F.when(either, _column(name)).otherwise(_column(name)) for name in vectors}
    kept = {name: column.alias(name, metadata=vectors[name]) for name, column in chosen.items()}
    return dataset.withColumns(kept) if kept else dataset


def check_frame(dataset: DataFrame, action: str) -> None:
    """Raise TypeError for what is no DataFrame of Spark."""
    if not hasattr(dataset, "sparkSession"):
        kind = f"{type(dataset).__module__}.{type(dataset).__qualname__}"
        raise TypeError(f"{action} takes a DataFrame of Spark, received a {kind}; make one by spark.createDataFrame.")


def check_rows(dataset: DataFrame, action: str) -> None:
    """Raise for what is no DataFrame of Spark (TypeError), or one without an end (ValueError)."""
    check_frame(dataset, action)
    if dataset.isStreaming:
        raise ValueError(
            f"{action} takes a DataFrame whose rows come to an end, received a stream; store its rows and read those, "
            "or take them batch by batch in foreachBatch."
        )


def check_outputs(dataset: DataFrame, added: list[str]) -> None:
    """ValueError if a column to be added has no name, is there already, or comes twice, as Spark reads names."""
    for at, name in enumerate(added):
        if not name:
            raise ValueError("An output column must have a name, received ''; give it one.")
        if found := _called(dataset, name, dataset.columns):
            taken = "" if found[0] == name else f" as {found[0]!r}"
            raise ValueError(f"Output column {name!r} exists already{taken}; drop it or name another.")
        if _called(dataset, name, added[:at]):
            raise ValueError(f"Output column {name!r} is asked for twice; give each output a name of its own.")


def check_files(dataset: DataFrame, layout: Layout) -> None:
    """ValueError if the features column does not hold image files."""
    found = dataset.schema[layout.names[0]].dataType
    subject = f"imageStorage is 'files', for which {layout.param} {', '.join(map(repr, layout.names))}"
    if not isinstance(found, BinaryType):
        raise ValueError(
            f"{subject} must be binary and hold JPEG or PNG files, received {found.simpleString()}; set it to 'pixels'."
        )
    if layout.binary == "raw" or layout.pixels is None:
        reason = "binaryFormat 'raw'" if layout.binary == "raw" else f"a network of input_shape {layout.shape}"
        raise ValueError(f"{subject} must hold JPEG or PNG files, received {reason}; set it to 'pixels'.")
    require_pillow("imageStorage='files'")


def _called(dataset: DataFrame, name: str, names: list[str]) -> list[str]:
    """Those of the names that are this one to Spark: it ignores case unless told otherwise."""
    found = [other for other in names if other.lower() == name.lower()]
    if found not in ([], [name]):
        told = setting(dataset.sparkSession, "spark.sql.caseSensitive", "false")
        return [other for other in found if other == name] if told.strip().lower() == "true" else found
    return found


def _check_shape(kinds: list[DataType], layout: Layout) -> None:
    kind, subject = kinds[0], layout.subject
    images = _is_image(kind) or (isinstance(kind, BinaryType) and layout.binary == "image")
    split = layout.strings is not None and layout.strings.split is not None
    whole = [_is_number(each) or (isinstance(each, StringType) and not split) for each in kinds]
    lists = _is_string(kind) and not whole[0]
    layout.check_form(1 if lists else _depth(kind), images, kind.simpleString())
    if all(whole) and len(kinds) != layout.width:
        received = kind.simpleString() if len(kinds) == 1 else f"{len(kinds)} columns of one value"
        raise ValueError(
            f"{subject} must hold {layout.width} values a row {layout.purpose}, received {received}; name as many "
            "columns in featuresCols, or one of arrays."
        )
    if isinstance(kind, BinaryType) and layout.binary == "image":
        require_pillow(f"{subject} with binaryFormat='image'")
    if (images or isinstance(kind, BinaryType)) and layout.resize != "error":
        require_pillow(f"{subject} with imageResize={layout.resize!r}")


def _sent(dataset: DataFrame, name: str, param: str, kinds: dict[str, ColumnType]) -> Column:
    if name not in dataset.columns:
        raise ValueError(
            f"{param} names column {name!r}, which is not there; the columns are {', '.join(dataset.columns)}."
        )
    if len(same := _called(dataset, name, dataset.columns)) > 1:
        raise ValueError(
            f"{param} names column {name!r}, for which Spark finds {' and '.join(map(repr, same))}; rename or drop one."
        )
    found = dataset.schema[name].dataType
    for kind in kinds.values():
        if kind.accepts(found):
            return kind.sent(_column(name), found)
    raise ValueError(f"{param} {name!r} must be {' or '.join(kinds)}, received {found.simpleString()}; cast it.")


def _column(name: str) -> Column:
    """That of this name, dots and all."""
    return F.col(quoted(name))
