"""`python -m sparkdl.predict MODEL ROWS -o OUT`: files of rows scored by a saved model, without Spark.

Rows go by in record batches, so that files may be larger than memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyarrow import csv, dataset, fs, parquet
from tqdm import tqdm

from sparkdl.file_systems import open_filesystem
from sparkdl.scoring.predictor import load

BATCH_ROWS = 8192  # that are read and scored at a time
FORMATS = ("parquet", "csv", "arrow")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit status: 0, or 2 where it could not be done, with a sentence on the standard error."""
    given = _parser().parse_args(arguments)
    try:
        predict_files(given.model, given.rows, given.output, columns=given.columns, device=given.device)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"python -m sparkdl.predict: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def predict_files(
    model: str,
    rows: Sequence[str],
    output: str,
    *,
    columns: Sequence[str] | None = None,
    device: str | None = None,
) -> int:
    """Score files of rows, in their order, into one file.

    Parameters
    ----------
    model : str
        Path or URI of a saved model, as of `sparkdl.load`.
    rows : sequence of str
        Paths or URIs of Parquet, CSV or Arrow files, as their names end, or of folders of one such kind.
    output : str
        Path or URI of the file to write, Parquet or CSV as its name ends; over one that is there only once all is well.
    columns : sequence of str, optional
        Those to be written, of the rows and of the model; by default all.
    device : str, optional
        As of `sparkdl.load`.

    Returns
    -------
    int
        Rows written.

    Raises
    ------
    ValueError
        A name ends otherwise, files differ in their columns, a column is missing, or a row cannot be used and the
        model's handleInvalid is "error".
    OSError
        A file cannot be read or written.
    """
    kind = _format(output, ("parquet", "csv"))
    predictor = load(model, device=device)
    sources = dataset.dataset([_rows_at(name) for name in rows])
    there = [*sources.schema.names, *predictor.columns]
    kept = there if columns is None else list(columns)
    if missing := [name for name in (*kept, *predictor.inputs) if name not in there]:
        raise ValueError(f"column {missing[0]!r} is not there; the columns are {', '.join(there)}.")
    read = [name for name in sources.schema.names if name in {*kept, *predictor.inputs}]
    total, written = sources.count_rows(), 0
    filesystem, path = open_filesystem(output)
    temporary = f"{path}.part"
    try:
        with (
            filesystem.open_output_stream(temporary) as stream,
            tqdm(total=total, unit="rows", unit_scale=True, disable=None) as bar,  # None: in terminals only
            ExitStack() as stack,
        ):
            writer: Any = None
            for batch in _batches(sources, read):
                found = predictor.predict(batch).select(kept)
                writer = writer or stack.enter_context(_writer(kind, stream, found.schema))
                writer.write_batch(found)
                written += len(found)
                bar.update(len(batch))
        filesystem.move(temporary, path)
    except BaseException:
        if filesystem.get_file_info(temporary).type == fs.FileType.File:
            filesystem.delete_file(temporary)
        raise
    return written


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sparkdl.predict", description="Score files of rows without Spark.")
    parser.add_argument("model", metavar="MODEL", help="a saved model, or a PipelineModel that ends in one")
    parser.add_argument("rows", metavar="ROWS", nargs="+", help="files or folders of rows: Parquet, CSV or Arrow")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the file to write: .parquet or .csv")
    parser.add_argument(
        "-c",
        "--columns",
        nargs="+",
        metavar="COLUMN",
        help="columns to write, of the rows and of the model; by default all",
    )
    parser.add_argument("-d", "--device", choices=("auto", "cpu", "gpu"), help="by default the model's deviceType")
    return parser


def _format(name: str, formats: Sequence[str]) -> str:
    """By the end of a file's name; ValueError for another."""
    for kind in formats:
        if name.lower().endswith(f".{kind}"):
            return kind
    raise ValueError(f"{name!r} must end in {' or '.join(f'.{kind}' for kind in formats)}; name a file of such.")


def _rows_at(name: str) -> dataset.Dataset:
    """The rows of a file, or of a folder of Parquet files unless its first file's name ends otherwise."""
    filesystem, path = open_filesystem(name)
    found = filesystem.get_file_info(path)
    if found.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"{name} is not there; check the path.")
    if found.type == fs.FileType.File:
        return dataset.dataset(path, filesystem=filesystem, format=_format(name, FORMATS))
    listed = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    files = [info.path for info in listed if info.type == fs.FileType.File and info.base_name[0] not in "._"]
    if not files:
        raise FileNotFoundError(f"{name} holds no files; check the path.")
    return dataset.dataset(path, filesystem=filesystem, format=_format(min(files), FORMATS))


def _batches(sources: dataset.Dataset, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows, a few at a time; of no rows one batch of none, for its columns."""
    some = False
    for batch in sources.to_batches(columns=columns, batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1):
        if len(batch):
            some = True
            yield batch
    if not some:
        yield from sources.schema.empty_table().select(columns).to_batches() or [
            pa.RecordBatch.from_pylist([], pa.schema([sources.schema.field(name) for name in columns]))
        ]


def _writer(kind: str, stream: Any, schema: pa.Schema) -> Any:
    """Of one of the formats; ValueError for a column that CSV cannot hold."""
    if kind == "parquet":
        return parquet.ParquetWriter(stream, schema)
    for field in schema:
        if pa.types.is_nested(field.type):
            raise ValueError(
                f"column {field.name!r} holds lists or structs, which CSV cannot; write .parquet, or name the columns "
                "that are to be written."
            )
    return csv.CSVWriter(stream, schema)


if __name__ == "__main__":
    sys.exit(main())
