"""Images: a packaged sample to try things on, and readers of the files that data sets come in."""

from __future__ import annotations

import io
from importlib import resources
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparkdl.datasets.found_files import content_of, found_files

FASHION_CLASSES = (
    "t-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
MNIST_CLASSES = tuple("0123456789")
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def sample() -> pa.Table:
    """6,000 rows of Fashion-MNIST, which travel with the package: 500 to train and 100 to test for each class.

    Returns
    -------
    pyarrow.Table
        In random order, with the columns of `fashion_mnist`.
    """
    packed = resources.files("sparkdl").joinpath("samples/fashion_mnist.parquet").read_bytes()
    return pq.read_table(io.BytesIO(packed))


def fashion_mnist(directory: str | Path) -> pa.Table:
    """Fashion-MNIST from its four idx files, gzipped or not.

    Parameters
    ----------
    directory : str or Path
        Folder of the files, or the one that holds them in a folder fashion-mnist.

    Returns
    -------
    pyarrow.Table
        60,000 training rows and then 10,000 test rows: image (binary, 28 * 28 bytes, row by row from the top left),
        label (string, of `FASHION_CLASSES`) and split ("train" or "test").

    Raises
    ------
    FileNotFoundError, ValueError
        If a file is missing, or is damaged.

    Notes
    -----
    Xiao, Rasul, Vollgraf: Fashion-MNIST, arXiv:1708.07747; files at https://github.com/zalandoresearch/fashion-mnist.
    """
    return _idx_table(directory, "fashion-mnist", FASHION_CLASSES)


def mnist(directory: str | Path) -> pa.Table:
    """MNIST, handwritten digits, from its four idx files, gzipped or not.

    Parameters
    ----------
    directory : str or Path
        Folder of the files, or the one that holds them in a folder mnist.

    Returns
    -------
    pyarrow.Table
        With the rows and columns of `fashion_mnist`; a label is one of `MNIST_CLASSES`, "0" to "9".

    Raises
    ------
    FileNotFoundError, ValueError
        If a file is missing, or is damaged.

    Notes
    -----
    LeCun, Cortes, Burges: The MNIST database of handwritten digits, http://yann.lecun.com/exdb/mnist.
    """
    return _idx_table(directory, "mnist", MNIST_CLASSES)


def cifar10(directory: str | Path) -> pa.Table:
    """CIFAR-10 from its binary version, gzipped or not: all of data_batch_*.bin that there are, and test_batch.bin.

    Parameters
    ----------
    directory : str or Path
        Folder of the files, or the one that holds them in a folder cifar10.

    Returns
    -------
    pyarrow.Table
        Training rows batch by batch, then test rows: image (binary, 32 * 32 * 3 bytes: rows, columns, red green blue),
        label (string, of `CIFAR10_CLASSES`) and split ("train" or "test").

    Raises
    ------
    FileNotFoundError, ValueError
        If a file is missing, or is damaged.

    Notes
    -----
    Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009; format and files at
    https://www.cs.toronto.edu/~kriz/cifar.html.
    """
    tables = []
    for split, pattern in (("train", "data_batch_*.bin"), ("test", "test_batch.bin")):
        for path in found_files(directory, "cifar10", pattern):
            content = np.frombuffer(content_of(path), np.uint8)
            if not content.size or content.size % 3073:
                raise ValueError(
                    f"{path} should hold records of 3,073 bytes, received {content.size:,} bytes; download it again."
                )
            records = content.reshape(-1, 3073)
            images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            tables.append(_table(images, records[:, 0], CIFAR10_CLASSES, split))
    return pa.concat_tables(tables)


def read_idx(path: str | Path) -> np.ndarray:
    """The array of bytes in an idx file, the format of MNIST; gzipped if the name ends in .gz.

    Parameters
    ----------
    path : str or Path
        Big-endian: two zero bytes, the type (8: unsigned byte), the number of axes, each axis's length in four bytes,
        and the elements, last axis fastest (http://yann.lecun.com/exdb/mnist).

    Returns
    -------
    numpy.ndarray
        Read-only uint8 of the shape the file states.

    Raises
    ------
    ValueError
        If it is no idx file of bytes, or is shorter or longer than it states.
    """
    content = content_of(Path(path))
    start = 4 + 4 * content[3] if len(content) > 3 else 4
    if content[:3] != b"\x00\x00\x08" or len(content) < start:
        raise ValueError(
            f"{path} should be an idx file of bytes, which starts with 00 00 08 and its shape, "
            f"received {content[:start].hex(' ') or 'nothing'}; download it again."
        )
    shape = tuple(int(length) for length in np.frombuffer(content, ">u4", content[3], offset=4))
    elements = np.frombuffer(content, np.uint8, offset=start)
    # Python's integers do not overflow, whatever a damaged header states.
    if elements.size != int(np.prod(np.array(shape, dtype=object))):
        raise ValueError(
            f"{path} states the shape {shape} but holds {elements.size:,} bytes after it; download it again."
        )
    return elements.reshape(shape)


def _idx_table(directory: str | Path, folder: str, classes: tuple[str, ...]) -> pa.Table:
    """Training and then test rows of a data set that comes as MNIST does."""
    tables = []
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images, labels = (
            read_idx(found_files(directory, folder, f"{prefix}-{kind}-ubyte")[0])
            for kind in ("images-idx3", "labels-idx1")
        )
        tables.append(_table(images, labels, classes, split))
    return pa.concat_tables(tables)


def _table(images: np.ndarray, labels: np.ndarray, classes: tuple[str, ...], split: str) -> pa.Table:
    """Rows of (image, label, split) around the memory of `images`, uint8 of shape (rows, ...)."""
    rows = len(images)
    if labels.shape != (rows,):
        raise ValueError(f"Every {split} image should have one label, received {labels.size} labels for {rows} images.")
    if labels.max(initial=0) >= len(classes):
        raise ValueError(
            f"{split} labels should be less than {len(classes)}, received {labels.max()}; check the files."
        )
    size = images[:1].size
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(size)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(images))]
    return pa.table(
        {
            "image": pa.Array.from_buffers(pa.binary(), rows, buffers),
            "label": pa.array(classes, pa.string()).take(pa.array(labels)),
            "split": pa.repeat(split, rows),
        }
    )
