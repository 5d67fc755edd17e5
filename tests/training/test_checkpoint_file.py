"""What is decoded is what was encoded, to the bit; whatever was changed, cut or written by others is refused."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from sparkdl.training.checkpoints.checkpoint_file import decode, encode

NOT_A_NUMBER = struct.unpack("<f", b"\x01\x02\xc0\x7f")[0]  # one of many NaNs
ARRAYS = {
    "weights/conv_0/kernel": np.arange(12, dtype="float32").reshape(2, 3, 2)[:, ::-1],
    "weights/dense/bias": np.array([-0.0, np.inf, NOT_A_NUMBER, 1e-45], "float32"),
    "optimizer/0/count": np.array(7, "int32"),
    "key": np.array([1, 2**32 - 1], "uint32"),
    "wide": np.array([[math.pi]], "float64"),
    "big-endian": np.arange(3, dtype=">i4"),
    "none": np.zeros((0, 3), "float32"),
    "flags": np.array([True, False, True]),
}
META = {"epoch": 3, "step": 120, "best": math.inf, "rng": {"names": ["a", 0.1]}, "zeros": "0" * 64}


@pytest.fixture(scope="module")
def data() -> bytes:
    return b"".join(encode(META, ARRAYS))


def test_what_is_encoded_is_decoded_bit_by_bit(data: bytes) -> None:
    meta, arrays = decode(data)
    assert meta == META
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype.newbyteorder("=")
        assert arrays[name].shape == array.shape
        assert arrays[name].astype(array.dtype).tobytes() == array.tobytes()
        assert arrays[name].flags.writeable and arrays[name].flags.aligned
    assert encode(*decode(data)) == encode(META, {name: arrays[name] for name in ARRAYS})


def test_a_checkpoint_without_arrays_is_one() -> None:
    assert decode(b"".join(encode({}, {}))) == ({}, {})


def test_a_file_is_safetensors(data: bytes) -> None:
    read = pytest.importorskip("safetensors.numpy").load(data)
    assert read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert read[name].tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()


def test_every_truncation_is_refused(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(ValueError, match="This checkpoint is truncated"):
            decode(data[:length])


def test_every_damaged_byte_is_refused(data: bytes) -> None:
    random = np.random.default_rng(0)
    for place in range(len(data)):
        bad = bytearray(data)
        bad[place] ^= 1 << random.integers(8)
        with pytest.raises(ValueError, match="^This "):
            decode(bytes(bad))


def test_exchanged_and_added_bytes_are_refused(data: bytes) -> None:
    exchanged = data[:-8] + data[-4:] + data[-8:-4]
    assert exchanged != data
    for bad in (exchanged, data + b"\0", data + data):
        with pytest.raises(ValueError, match="damaged"):
            decode(bad)


@pytest.mark.parametrize(
    "foreign", [b"PK\x03\x04" * 99, b"\0" * 999, (8).to_bytes(8, "little") + b'{"a":[]}', b"a" * 9]
)
def test_a_foreign_file_is_refused(foreign: bytes) -> None:
    with pytest.raises(ValueError, match=r"no checkpoint of sparkdl: it starts with b'"):
        decode(foreign)


def test_a_newer_format_is_refused(data: bytes) -> None:
    newer = data.replace(b'"sparkdl_checkpoint":"1"', b'"sparkdl_checkpoint":"2"')
    with pytest.raises(ValueError, match="is in format 2, this sparkdl reads up to 1; upgrade sparkdl"):
        decode(newer)


def test_a_dtype_that_is_not_held_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="received 'x' of complex64; convert it first"):
        encode({}, {"x": np.zeros(2, "complex64")})
