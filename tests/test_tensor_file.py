"""safetensors files are those of the package of that name, and what it refuses is refused."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import SafetensorError, deserialize
from safetensors.numpy import load_file, save_file

from sparkdl.tensor_file import DTYPES, decoded, encoded, read_tensors, write_tensors

ARRAYS = {
    "layer/kernel": np.arange(6, dtype="float32").reshape(2, 3),
    "layer/bias": np.array([1.5, -2, np.nan]),
    "empty": np.zeros((0, 4), "int32"),
    "scalar": np.array(7, "uint8"),
    "Größe \"'\\": np.array([True, False]),
    "turned": np.arange(12, dtype="int64").reshape(3, 4).T,
    "big-endian": np.arange(3, dtype=">i2"),
}


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype.newbyteorder("="), name
        assert found[name].shape == array.shape, name
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_the_package_reads_what_we_write(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", ARRAYS, {"format": "sparkdl"})
    same(load_file(tmp_path / "a.safetensors"), ARRAYS)


def test_we_read_what_the_package_writes(tmp_path: Path) -> None:
    native = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("=")) for name, array in ARRAYS.items()}
    save_file(native, tmp_path / "a.safetensors", {"format": "pt"})
    file = read_tensors(tmp_path / "a.safetensors")
    same(file.arrays, native)
    assert file.metadata == {"format": "pt"}


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_dtype_comes_back(dtype: Any, tmp_path: Path) -> None:
    array = np.array([0, 1, 1, 0]).astype(dtype)
    write_tensors(tmp_path / "a", {"a": array})
    same(read_tensors(tmp_path / "a").arrays, {"a": array})


def test_half_precision_of_brain_floats(tmp_path: Path) -> None:
    array = np.array([1.5, -3.0, 1e30], jnp.bfloat16)
    write_tensors(tmp_path / "a", {"a": array})
    ((_, told),) = deserialize((tmp_path / "a").read_bytes())
    assert told["dtype"] == "BF16" and bytes(told["data"]) == array.tobytes()


def test_arrays_are_views_of_the_file_that_cannot_be_written_to(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a", ARRAYS)
    kernel = read_tensors(tmp_path / "a").arrays["layer/kernel"]
    assert not kernel.flags.owndata and not kernel.flags.writeable


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"before")
    for arrays in ({"text": np.array(["a"])}, {"__metadata__": np.zeros(2)}):
        with pytest.raises(ValueError, match="must be of float64, .* received"):
            write_tensors(tmp_path / "a", arrays)
    assert [path.name for path in tmp_path.iterdir()] == ["a"] and (tmp_path / "a").read_bytes() == b"before"


def file_of(table: Any, body: bytes = b"", length: int | None = None) -> bytes:
    header = table if isinstance(table, bytes) else json.dumps(table).encode()
    return (len(header) if length is None else length).to_bytes(8, "little") + header + body


def entry(shape: Any, first: Any, last: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


NONE = r"a.safetensors' is damaged: 'a' has a shape \[.*, which no array can have; take it anew"
WRONG: dict[str, tuple[bytes, str]] = {
    "a header beyond the end": (file_of({}, length=99), "would have 99 bytes"),
    "a header beyond all limits": (file_of({}, length=2**63), "would have 9223372036854775808 bytes"),
    "no JSON": (file_of(b"{'a': 1}"), "its header is no JSON"),
    "no text": (file_of(b'{"\xff": 1}'), "its header is no JSON"),
    "deep JSON": (file_of(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "its header is no"),
    "a list": (file_of([]), "its header is no"),
    "no entry": (file_of({"a": 1}), "no table"),
    "space before it": (file_of(b" {}"), "no table"),
    "a name twice": (file_of(b'{"a": %b, "a": %b}' % ((json.dumps(entry([1], 0, 4)).encode(),) * 2), b"1234"), "twice"),
    "metadata of numbers": (file_of({"__metadata__": {"a": 1}}), "metadata are not text"),
    "an unknown dtype": (file_of({"a": entry([4], 0, 4, "F8")}, b"1234"), "is of 'F8', which is none of"),
    "a dtype of few bits": (
        file_of({"a": entry([4], 0, 4, "F8_E4M3")}, b"1234"),
        "cannot be read here: 'a' is of F8_E4M3, which is none of .*; convert it",
    ),
    "a dtype that is none": (file_of({"a": entry([4], 0, 4, ["F32"])}, b"1234"), "which is none of"),
    "nothing more": (file_of({"a": {"dtype": "F32"}}), "is told by dtype"),
    "a field too many": (file_of({"a": entry([1], 0, 4) | {"file": "/etc/passwd"}}, b"1234"), "is told by"),
    "a negative size": (file_of({"a": entry([-1, -1], 0, 4)}, b"1234"), "has a shape"),
    "a fraction": (file_of({"a": entry([1.0], 0, 4)}, b"1234"), "has a shape"),
    "a truth value": (file_of({"a": entry([True], 0, 4)}, b"1234"), "has a shape"),
    "one offset": (file_of({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4]}}, b"1234"), "offsets"),
    "too few bytes": (file_of({"a": entry([2], 0, 4)}, b"1234"), "has 4 bytes"),
    "sizes beyond all numbers": (file_of({"a": entry([2**40, 2**40], 0, 4)}, b"1234"), "has 4 bytes"),
    **{
        f"a shape {told}": (
            file_of({"a": entry(shape, 0, 4 * math.prod(shape))}, b"1234"[: 4 * math.prod(shape)]),
            NONE,
        )
        for told, shape in {"beyond NumPy": [2**62, 0], "beyond C": [0, 2**99], "of 70 axes": [1] * 70}.items()
    },
    "its end before its beginning": (file_of({"a": entry([0], 4, 0)}, b"1234"), "has -4 bytes"),
    "a hole at the beginning": (file_of({"a": entry([1], 4, 8)}, b"12345678"), "begins at byte 4, where"),
    "a hole at the end": (file_of({"a": entry([1], 0, 4)}, b"12345"), "arrays have 4 bytes, but 5 are there"),
    "cut off": (file_of({"a": entry([1], 0, 4)}, b"123"), "arrays have 4 bytes, but 3 are there"),
    "an overlap": (
        file_of({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, b"123456781234"),
        "'b' begins at byte 4, where the array before it ends at 8",
    ),
}


@pytest.mark.parametrize(("data", "reason"), WRONG.values(), ids=WRONG)
def test_what_is_damaged_is_refused(data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(data)
    with pytest.raises(ValueError, match=reason):
        read_tensors(tmp_path / "a.safetensors")


@pytest.mark.parametrize("size", [0, 1, 8, 9])
def test_what_has_no_room_for_a_header_is_refused(size: int, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(size))
    with pytest.raises(ValueError, match=f"it has {size} bytes"):
        read_tensors(tmp_path / "a")


def test_what_the_package_refuses_of_changed_files_is_refused() -> None:
    """Some thousand files with some bytes of the header changed; what it takes we take, and read the same."""
    draw = np.random.default_rng(0)
    arrays = {"a": np.arange(3, dtype="int16"), "b": np.ones((2, 2), "float32")}
    data = b"".join(map(bytes, encoded(arrays, {"format": "pt"})))
    length = 8 + int.from_bytes(data[:8], "little")
    alphabet = b'0123456789"{}[],:IF8-. ab'
    taken = 0
    for _ in range(4000):
        changed = bytearray(data)
        for place in draw.integers(8, length, draw.integers(1, 3)):
            changed[place] = alphabet[draw.integers(len(alphabet))]
        try:
            found: Any = decoded(bytes(changed), "it").arrays
        except ValueError:
            found = None
        try:
            wanted: Any = {name: told for name, told in deserialize(bytes(changed))}
        except SafetensorError:
            wanted = None
        if wanted is None or any(told["dtype"] not in DTYPES for told in wanted.values()):
            assert found is None, changed
            continue
        assert found is not None, changed
        taken += 1
        assert found.keys() == wanted.keys()
        for name, told in wanted.items():
            assert (found[name].tobytes(), list(found[name].shape)) == (bytes(told["data"]), told["shape"])
    assert taken > 100


@pytest.mark.parametrize("name", ["a.pt", "a.pth", "pytorch_model.bin", "a.pkl", "a.ckpt"])
def test_pickles_are_refused_with_the_line_that_turns_them_into_safetensors(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"anything at all")
    with pytest.raises(ValueError, match=r"seems to be, a pickle.*python -c \"import sys, torch.*weights_only=True"):
        read_tensors(tmp_path / name)


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"\x80\x02\x8a\nl"])
def test_pickles_by_other_names_are_refused_too(start: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(start + bytes(99))
    with pytest.raises(ValueError, match="a pickle, which could run any code"):
        read_tensors(tmp_path / "a.safetensors")


@pytest.mark.parametrize("length", [0x0280, 0x4B50])
def test_a_header_whose_length_begins_as_a_pickle_does_is_none(length: int, tmp_path: Path) -> None:
    table = json.dumps({"a": entry([1], 0, 4)}).encode()
    (tmp_path / "a").write_bytes(file_of(table.ljust(length), b"1234"))
    assert read_tensors(tmp_path / "a").arrays["a"].shape == (1,)


@pytest.mark.parametrize("name", ["a", "-x$(touch ran) `touch ran` 'b\" c;touch ran"])
def test_the_line_works_in_a_shell_whatever_the_file_is_called(name: str, tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    made: dict[str, Any] = {"a": torch.arange(3.0)}
    made["tied"] = made["a"]
    made["turned"] = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    torch.save(made, tmp_path / f"{name}.pt")
    with pytest.raises(ValueError, match="python -c") as refused:
        read_tensors(tmp_path / f"{name}.pt")
    line = str(refused.value).partition("where you trust it: ")[2]
    search = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    subprocess.run(line, shell=True, cwd=tmp_path, env=os.environ | {"PATH": search}, check=True, timeout=120)
    found = read_tensors(tmp_path / f"{name}.safetensors").arrays
    same(found, {name: array.numpy() for name, array in made.items()})
    assert not (tmp_path / "ran").exists()
