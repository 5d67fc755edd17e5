"""`python -m sparkdl.predict MODEL ROWS -o OUT`: files of rows scored by a saved model, without Spark.

Rows go by in record batches, so that files may be larger than memory. What the model does not read of CSV files comes
out as the text that it is, so that an id of 001 stays one.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import csv, fs, parquet
from tqdm import tqdm

from sparkdl.file_systems import open_filesystem
from sparkdl.scoring.predictor import Predictor
from sparkdl.scoring.row_files import Told, batches, check_told, common_schema, format_of, row_files
from sparkdl.scoring.saved_model import read_model

BATCH_ROWS = 8192  # that are read and scored at a time
_ended = threading.Event()  # by `end`


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit status: 0, or 2 where it could not be done, with a sentence on the standard error."""
    given = _parser().parse_args(arguments)
    try:
        predict_files(
            given.model,
            given.rows,
            given.output,
            columns=given.columns,
            strings=given.strings,
            numbers=given.numbers,
            device=given.device,
        )
    except (ValueError, TypeError, OSError, ImportError, pa.ArrowException) as error:
        print(f"python -m sparkdl.predict: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def predict_files(
    model: str,
    rows: Sequence[str],
    output: str,
    *,
    columns: Sequence[str] | None = None,
    strings: Sequence[str] = (),
    numbers: Sequence[str] = (),
    device: str | None = None,
) -> int:
    """Score files of rows, in their order, into one file.

    Parameters
    ----------
    model : str
        Path or URI of a saved model, as of `sparkdl.load`.
    rows : sequence of str
        Paths or URIs of Parquet, CSV or Arrow files, as their names end, or of folders of such. Folders in these that
        are named as Hive's day=mo add a column.
    output : str
        Path or URI of the file to write, Parquet or CSV as its name ends; over one that is there only once all is well.
    columns : sequence of str, optional
        Those to be written, of the rows and of the model; by default all, which must then be in every file.
    strings, numbers : sequence of str, optional
        Columns of CSV files, and of such folders' names, that hold these; see the notes.
    device : str, optional
        As of `sparkdl.load`.

    Returns
    -------
    int
        Rows written.

    Raises
    ------
    ValueError
        A name ends otherwise, `output` is a folder, files differ in their columns or in types that do not go together,
        a column is missing, one of CSV is to be numbers and is not, or could be strings or numbers, or a row cannot be
        used and the model's handleInvalid is "error".
    OSError
        A file cannot be read or written.

    Notes
    -----
    CSV, in UTF-8, tells no types. Columns that the model reads as numbers are read so, and all others come out as the
    strings that they are, an empty one as null unless it is quoted. A HashedEmbedding and a layer with a vocabulary
    take whole numbers as well as strings, with other predictions, and the model does not tell which it was fitted on:
    a column for these that looks like numbers is refused until `strings` or `numbers` names it.
    """
    kind = format_of(output, ("parquet", "csv"))
    filesystem, path = open_filesystem(output)
    if filesystem.get_file_info(path).type == fs.FileType.Directory:
        raise ValueError(f"output must name a file, received {output!r}, which is a folder; name a file in it.")
    saved = read_model(model)
    predictor = Predictor(saved, device=device)
    told = Told.of(saved.reading.layouts(saved.network).values(), strings, numbers)
    files = [file for name in rows for file in row_files(name)]
    if not files:
        raise ValueError("rows must name at least one file or folder, received none.")
    check_told(files, [*strings, *numbers])
    names = files[0].rows.schema.names
    there = [*names, *predictor.columns]
    kept = there if columns is None else list(columns)
    if missing := [name for name in (*kept, *predictor.inputs) if name not in there]:
        raise ValueError(f"column {missing[0]!r} is not there; the columns are {', '.join(dict.fromkeys(there))}.")
    read = [name for name in names if name in {*kept, *predictor.inputs}]
    schema = common_schema(files, None if columns is None else read, told)
    total, written = sum(file.rows.count_rows() for file in files), 0
    temporary = f"{path}.part"
    try:
        with (
            filesystem.open_output_stream(temporary) as stream,
            tqdm(total=total, unit="rows", unit_scale=True, disable=None) as bar,  # None: in terminals only
            ExitStack() as stack,
        ):
            writer: Any = None
            for batch in batches(files, schema, told, BATCH_ROWS):
                if _ended.is_set():
                    end()
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


def end(*_: Any) -> NoReturn:
    """Leave the program as SIGTERM asks for, with the half of a file deleted, which its default would leave behind.

    Python drops an exception that comes up where objects are collected, as this may, so that the next batch looks.
    """
    _ended.set()
    sys.exit(128 + signal.SIGTERM)


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
    parser.add_argument(
        "--strings",
        nargs="+",
        default=(),
        metavar="COLUMN",
        help="columns of CSV files that hold strings for the model, although they look like numbers, as 01234 does",
    )
    parser.add_argument(
        "--numbers",
        nargs="+",
        default=(),
        metavar="COLUMN",
        help="columns of CSV files that hold numbers, of those that the model reads as strings, too, or not at all",
    )
    parser.add_argument("-d", "--device", choices=("auto", "cpu", "gpu"), help="by default the model's deviceType")
    return parser


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
    signal.signal(signal.SIGTERM, end)
    sys.exit(main())
