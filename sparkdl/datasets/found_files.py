"""Where the files of a data set are, gzipped or not, and what is in them."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path


def data_directory() -> Path | None:
    """The folder of full data sets that the environment variable SPARKDL_DATA names; None if it is unset or empty.

    Raises
    ------
    ValueError
        If there is no such folder.
    """
    named = os.environ.get("SPARKDL_DATA")
    if named and not Path(named).is_dir():
        raise ValueError(f"SPARKDL_DATA should name a folder of data sets, received {named!r}; correct or unset it.")
    return Path(named) if named else None


def found_files(directory: str | Path, folder: str, pattern: str) -> list[Path]:
    """Files `pattern`, each gzipped or, where it is there both ways, not, in `directory` or else in its `folder`."""
    for place in (Path(directory), Path(directory, folder)):
        zipped = {path.name.removesuffix(".gz"): path for path in place.glob(f"{pattern}.gz")}
        if paths := zipped | {path.name: path for path in place.glob(pattern)}:
            return [paths[name] for name in sorted(paths)]
    raise FileNotFoundError(
        f"directory should hold {pattern} or {pattern}.gz, itself or in {folder}, received {str(directory)!r}; "
        "download the data set or name its folder."
    )


def content_of(path: Path) -> bytes:
    """A file's bytes, unzipped if its name ends in .gz; ValueError if it is damaged."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as file:
            return file.read()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} should be a whole gzip file, received a damaged one; download it again.") from error


def text_of(directory: str | Path, folder: str, name: str) -> str:
    """The text of a file in UTF-8, whose lines end in \\n; FileNotFoundError or ValueError if missing or damaged."""
    path = found_files(directory, folder, name)[0]
    try:
        return content_of(path).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} should be text in UTF-8, received {error}; download it again.") from None
