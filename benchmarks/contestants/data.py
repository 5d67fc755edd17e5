"""Where the data sets that a benchmark reads lie."""

from __future__ import annotations

from pathlib import Path

from sparkdl import datasets


def data_folder(given: Path | None, otherwise: str) -> Path | None:
    """The folder that --data or SPARKDL_DATA names; if neither does, prints what happens otherwise."""
    directory = given or datasets.data_directory()
    if directory is None:
        print(f"no data: neither --data nor SPARKDL_DATA names a folder of data sets; {otherwise}")
    return directory


def data_file(directory: Path, folder: str, name: str) -> Path:
    """The file of that name, gzipped or not, in the directory or in its `folder`.

    Raises
    ------
    FileNotFoundError
        There is none.
    """
    for place in (directory, directory / folder):
        for path in (place / name, place / f"{name}.gz"):
            if path.exists():
                return path
    raise FileNotFoundError(f"DIR should hold {name} or {name}.gz, itself or in {folder}, received {directory}.")
