"""Series of numbers: readers of the files that data sets of them come in."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from sparkdl.datasets.found_files import content_of, found_files, text_of

CHART_CLASSES = ("normal", "cyclic", "increasing", "decreasing", "upward shift", "downward shift")
CHARTS, CHART_STEPS = 100, 60  # of each class; of each chart
VOWEL_VALUES = 12
ETT_COLUMNS = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
ETT_DAY = {"ETTh1": 24, "ETTh2": 24, "ETTm1": 96, "ETTm2": 96}  # rows of a day
ETT_MONTHS = {"train": 12, "validation": 4, "test": 4}  # of 30 days


def japanese_vowels(directory: str | Path) -> pa.Table:
    """Japanese Vowels: two vowels as nine men say them, each utterance a sequence of 7 to 29 steps.

    Parameters
    ----------
    directory : str or Path
        Folder of the files ae.train, ae.test, size_ae.train and size_ae.test, gzipped or not, or the one that holds
        them in a folder japanese-vowels.

    Returns
    -------
    pyarrow.Table
        270 training rows and then 370 test rows: series (a list of steps, each a list of 12 doubles, the cepstrum's
        coefficients), label (string, the speaker: "1" to "9") and split ("train" or "test").

    Raises
    ------
    FileNotFoundError, ValueError
        If a file is missing, or is damaged.

    Notes
    -----
    Kudo, Toyama, Shimbo: Multidimensional Curve Classification Using Passing-Through Regions, Pattern Recognition
    Letters 20, 1999; files at https://archive.ics.uci.edu/dataset/128/japanese+vowels.
    """
    tables = []
    for split in ("train", "test"):
        name = f"ae.{split}"
        text = text_of(directory, "japanese-vowels", name).strip()
        series = [_numbers(block, name, VOWEL_VALUES).tolist() for block in text.split("\n\n")]
        sizes = text_of(directory, "japanese-vowels", f"size_{name}").split()
        labels = [str(speaker) for speaker, size in enumerate(sizes, 1) for _ in range(int(size))]
        if len(labels) != len(series):
            raise ValueError(
                f"{name} should hold the {len(labels)} utterances that size_{name} counts, received {len(series)}; "
                "download both again."
            )
        table = {"series": pa.array(series, pa.list_(pa.list_(pa.float64()))), "label": labels}
        tables.append(pa.table(table | {"split": pa.repeat(split, len(series))}))
    return pa.concat_tables(tables)


def synthetic_control(directory: str | Path) -> pa.Table:
    """Synthetic Control Charts: 600 series of 60 numbers, a hundred of each of six kinds.

    Parameters
    ----------
    directory : str or Path
        Folder of the file synthetic_control.data, gzipped or not, or the one that holds it in a folder
        synthetic-control.

    Returns
    -------
    pyarrow.Table
        600 rows, kind by kind: series (a list of 60 doubles) and label (string, of `CHART_CLASSES`).

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing, or is damaged.

    Notes
    -----
    Alcock, Manolopoulos: Time-Series Similarity Queries Employing a Feature-Based Approach, 1999; file at
    https://archive.ics.uci.edu/dataset/139/synthetic+control+chart+time+series.
    """
    name = "synthetic_control.data"
    charts = _numbers(text_of(directory, "synthetic-control", name), name, CHART_STEPS)
    if len(charts) != CHARTS * len(CHART_CLASSES):
        raise ValueError(
            f"{name} should hold {CHARTS} lines of each of {len(CHART_CLASSES)} kinds, received {len(charts)} lines; "
            "download it again."
        )
    labels = [kind for kind in CHART_CLASSES for _ in range(CHARTS)]
    return pa.table({"series": pa.array(charts.tolist(), pa.list_(pa.float64())), "label": labels})


def ett(directory: str | Path, name: str = "ETTh1") -> pa.Table:
    """Electricity Transformer Temperature: the loads and the oil temperature of a transformer over two years.

    Parameters
    ----------
    directory : str or Path
        Folder of the file NAME.csv, gzipped or not, or the one that holds it in a folder ett.
    name : str, default "ETTh1"
        "ETTh1" or "ETTh2", of two transformers, with a row an hour, 17,420 in all; "ETTm1" or "ETTm2", with a row every
        quarter of an hour.

    Returns
    -------
    pyarrow.Table
        In the order of time: time (timestamp without a zone), the six loads HUFL, HULL, MUFL, MULL, LUFL and LULL and
        the oil temperature OT in degrees Celsius (doubles), and split, the usual one: "train" for the first 12 months
        of 30 days, "validation" and "test" for 4 each, null for what is left.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing, or is damaged, or `name` is none of these.

    Notes
    -----
    Zhou et al.: Informer, arXiv:2012.07436; files at https://github.com/zhouhaoyi/ETDataset.
    """
    if name not in ETT_DAY:
        raise ValueError(f"name must be one of {', '.join(ETT_DAY)}, received {name!r}.")
    path = found_files(directory, "ett", f"{name}.csv")[0]
    kinds = {"date": pa.timestamp("us"), **dict.fromkeys(ETT_COLUMNS, pa.float64())}
    options = pyarrow.csv.ConvertOptions(column_types=kinds, include_columns=list(kinds))
    try:
        table = pyarrow.csv.read_csv(io.BytesIO(content_of(path)), convert_options=options)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} should have the columns {', '.join(kinds)}, received: {reason}.") from None
    split = np.repeat(list(ETT_MONTHS), [months * 30 * ETT_DAY[name] for months in ETT_MONTHS.values()]).tolist()
    split = (split + [None] * len(table))[: len(table)]
    return table.rename_columns(["time", *ETT_COLUMNS]).append_column("split", pa.array(split, pa.string()))


def _numbers(text: str, name: str, width: int) -> np.ndarray:
    """Lines of `width` numbers as float64 of shape (lines, width)."""
    rows = [line.split() for line in text.splitlines()]
    try:
        if any(len(row) != width for row in rows):
            raise ValueError
        return np.array(rows, np.float64).reshape(-1, width)
    except ValueError:
        raise ValueError(f"Lines of {name} should hold {width} numbers each; download it again.") from None
