"""Where the data sets that a benchmark reads lie, and the options of those that learn from them."""

from __future__ import annotations

import argparse
from pathlib import Path

from reporting import arguments

from sparkdl import datasets


def parse(description: str | None, files: str, validate: str = "", seeds: bool = False) -> argparse.Namespace:
    """The options of a benchmark that learns.

    Parameters
    ----------
    description : str or None
    files : str
        What the folder of --data holds.
    validate : str, optional
        What --validate does, if there is to be such an option.
    seeds : bool, default False
        Whether --seeds says how often it learns.
    """
    parser = arguments(description)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, metavar="DIR", help=f"folder of {files}")
    if seeds:
        parser.add_argument("--seeds", type=int, metavar="N", help="fits of each network (default: 3; quick: 1)")
    if validate:
        parser.add_argument("--validate", action="store_true", help=validate)
    options = parser.parse_args()
    if seeds and options.seeds is not None and options.seeds < 1:
        parser.error("--seeds must be at least 1.")
    return options


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
