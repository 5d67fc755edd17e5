"""Files and folders of rows: which there are, of what columns and types, and the rows of all in record batches.

CSV files, and folders named as day=mo, hold text, which says nothing of its type: "01" may be a number or a name. It
stays text but where it is known to be numbers, and where it could be either, the user is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, dataset, fs

from sparkdl.decoding.arrow_types import is_number
from sparkdl.decoding.hashing import is_string
from sparkdl.decoding.layout import Layout
from sparkdl.file_systems import open_filesystem

FORMATS = ("parquet", "csv", "arrow")
LINES = csv.ParseOptions(newlines_in_values=True)
AS_WRITTEN = csv.ConvertOptions(null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False)
LONGEST_LINE = 16 << 20  # bytes, of which Arrow reads as many at once
BLOCKS = csv.ReadOptions(block_size=LONGEST_LINE)
_spelled = csv.ConvertOptions()
SPELLED = (  # what Arrow takes for null, true and false in files of CSV
    dict.fromkeys(_spelled.null_values)
    | dict.fromkeys(_spelled.true_values, 1.0)
    | dict.fromkeys(_spelled.false_values, 0.0)
)


class RowFile(NamedTuple):
    """A file of rows.

    Attributes
    ----------
    name : str
        For messages, as the user would write it.
    rows : Dataset
    texts : tuple of str
        Columns that are text whatever they hold.
    """

    name: str
    rows: dataset.Dataset
    texts: tuple[str, ...]

    def field(self, name: str, numbers: Collection[str]) -> pa.Field:
        """A column's, as it is to be read."""
        return pa.field(name, pa.float64()) if name in self.texts and name in numbers else self.rows.schema.field(name)


class Told(NamedTuple):
    """What is known of columns that are text where they lie; others stay so.

    Attributes
    ----------
    numbers, either : frozenset of str
        To be read as numbers; and those that could be meant so or not.
    """

    numbers: frozenset[str]
    either: frozenset[str]

    @classmethod
    def of(cls, layouts: Iterable[Layout], strings: Sequence[str], numbers: Sequence[str]) -> Told:
        """By what a model reads, and what its user says; ValueError where the latter says both of a column."""
        for name in strings:
            if name in numbers:
                raise ValueError(f"strings and numbers both name column {name!r}; leave it out of one of them.")
        read = [(name, layout.strings) for layout in layouts for name in layout.names]
        known = frozenset(numbers) | {name for name, how in read if how is None}
        either = frozenset(name for name, how in read if how is not None and how.split is None)
        return cls(known - {*strings}, either - known - {*strings})


def format_of(name: str, formats: Sequence[str]) -> str:
    """By the end of a file's name; ValueError for another."""
    for kind in formats:
        if name.lower().endswith(f".{kind}"):
            return kind
    raise ValueError(f"{name!r} must end in {' or '.join(f'.{kind}' for kind in formats)}; name a file of such.")


def row_files(name: str) -> list[RowFile]:
    """A file alone, or those of a folder and of the folders in it, but for hidden ones, in the order of their paths.

    Raises
    ------
    FileNotFoundError
        There is none.
    ValueError
        A file's name ends otherwise, or it cannot be read.
    """
    filesystem, path = open_filesystem(name)
    found = filesystem.get_file_info(path)
    if found.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"{name} is not there; check the path.")
    if found.type == fs.FileType.File:
        return [_row_file(name, filesystem, path, "")]
    listed = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    within = sorted(info.path.removeprefix(path).lstrip("/") for info in listed if info.type == fs.FileType.File)
    shown = [file for file in within if not any(part[0] in "._" for part in file.split("/"))]
    if not shown:
        raise FileNotFoundError(f"{name} holds no files; check the path.")
    return [_row_file(f"{name.rstrip('/')}/{file}", filesystem, f"{path}/{file}", path) for file in shown]


def _row_file(name: str, filesystem: fs.FileSystem, path: str, folder: str) -> RowFile:
    """Of a folder's file, the folders between may name columns, as Hive's day=mo does."""
    kind = format_of(path, FORMATS)
    form = dataset.CsvFileFormat(LINES, convert_options=AS_WRITTEN, read_options=BLOCKS) if kind == "csv" else kind
    with _named(name):
        schema = dataset.dataset(path, filesystem=filesystem, format=form).schema
    if kind == "csv":
        schema = pa.schema([(column, pa.string()) for column in schema.names])
    between = path.removeprefix(folder).split("/")[:-1] if folder else []
    keys = [unquote(part.split("=")[0]) for part in between if "=" in part]
    named = pa.schema([(key, pa.string()) for key in keys if key not in schema.names])
    rows = dataset.dataset(
        [path],
        schema=pa.schema([*schema, *named], schema.metadata),
        filesystem=filesystem,
        format=form,
        partitioning=dataset.partitioning(named, flavor="hive"),
        partition_base_dir=folder or None,
    )
    return RowFile(name, rows, tuple(rows.schema.names if kind == "csv" else named.names))


def common_schema(files: Sequence[RowFile], columns: Sequence[str] | None, told: Told) -> pa.Schema:
    """The columns of all files in types that hold what each has of them; None for all columns.

    Raises
    ------
    ValueError
        A file lacks a column, or has one that others lack and all are asked for; or no type holds what two files have.
    """
    first = files[0].rows.schema
    fields = {name: files[0].field(name, told.numbers) for name in (first.names if columns is None else columns)}
    for file in files[1:]:
        names = file.rows.schema.names
        lacking = [repr(name) for name in fields if name not in names]
        further = [repr(name) for name in names if columns is None and name not in first.names]
        if lacking or further:
            lacks = [f"lacks {', '.join(lacking)}"] if lacking else []
            has = [f"has {', '.join(further)} besides"] if further else []
            raise ValueError(
                f"{file.name} must have the columns of {files[0].name}, but {' and '.join(lacks + has)}; name files of "
                "the same columns, or in columns (--columns) those to be written, which all have, as all must have "
                "those that the model reads."
            )
        for name, field in fields.items():
            fields[name] = _common_field(field, file.field(name, told.numbers), file, files[0])
    return pa.schema(list(fields.values()), first.metadata)


def _common_field(one: pa.Field, other: pa.Field, file: RowFile, first: RowFile) -> pa.Field:
    if one == other:
        return one
    try:
        return pa.unify_schemas([pa.schema([one]), pa.schema([other])], promote_options="permissive").field(0)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise ValueError(
            f"column {one.name!r} of {file.name} must go with that of {first.name}, which holds {one.type}, received "
            f"{other.type}; write both in one type, or name a column of numbers of a CSV file in numbers."
        ) from None


def check_told(files: Sequence[RowFile], names: Iterable[str]) -> None:
    """ValueError for one that is text in no file, so that its type is known."""
    texts = list(dict.fromkeys(text for file in files for text in file.texts))
    for name in names:
        if name not in texts:
            raise ValueError(
                f"strings and numbers must name columns of CSV files, which are {', '.join(texts) or 'none here'}, "
                f"received {name!r}; leave it out."
            )


def batches(files: Sequence[RowFile], schema: pa.Schema, told: Told, most: int) -> Iterator[pa.RecordBatch]:
    """The rows, at most so many at a time; of no rows one batch of none, for its columns.

    Raises
    ------
    ValueError
        Text that is to be numbers is none, or a column of text could be either and looks like numbers.
    """
    some, either = False, set(told.either)
    for file in files:
        for batch in _read(file, schema.names, most):
            if len(batch):
                some = True
                either -= {name for name in either.intersection(file.texts) if _is_text(file, name, batch[name])}
                columns = [_as(file, field, batch[field.name]) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
    if not some:
        yield pa.RecordBatch.from_pylist([], schema)


def _read(file: RowFile, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
    with _named(file.name):
        yield from file.rows.to_batches(columns=columns, batch_size=most, batch_readahead=2, fragment_readahead=1)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Names the file in an error of reading it, as Arrow does not always."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if "straddling object" in str(error):
            raise ValueError(
                f"{name} cannot be read: a row of it is longer than {LONGEST_LINE >> 20} MiB, or a quotation mark is "
                "not closed; write such rows as Parquet."
            ) from None
        raise type(error)(f"{name} cannot be read: {error}") from None


def _is_text(file: RowFile, name: str, column: pa.Array) -> bool:
    """Whether text is certainly none of numbers, which that of nulls is not; ValueError if it may be."""
    if column.null_count == len(column):
        return False
    try:
        _numbers(column)
    except pa.ArrowInvalid:
        return True
    raise ValueError(
        f"column {name!r} of {file.name} looks like numbers, but the model reads strings, too, which give other "
        f"predictions; say which it holds, by strings or numbers: --strings {name} or --numbers {name}."
    )


def _as(file: RowFile, field: pa.Field, column: pa.Array) -> pa.Array:
    """A column in the type of all files; ValueError where it does not hold a value."""
    try:
        return (_numbers(column) if is_string(column.type) and is_number(field.type) else column).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(
            f"column {field.name!r} of {file.name} must hold values of type {field.type}, received others ({error}); "
            "correct the file."
        ) from None


def _numbers(text: pa.Array) -> pa.Array:
    """As numbers, which Arrow tells in files of CSV, nulls and booleans too; ArrowInvalid if it is none."""
    text = pc.utf8_trim_whitespace(text)
    place = pc.index_in(text, value_set=pa.array(list(SPELLED), text.type))
    others = pc.if_else(place.is_valid(), None, text)
    return pc.coalesce(pa.array(list(SPELLED.values()), pa.float64()).take(place), others.cast(pa.float64()))
