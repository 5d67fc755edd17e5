"""Ways to damage, forge or booby-trap a saved stage, each drawn from a seed so that a failure can be repeated."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from sparkdl.scoring.saved_stage import params_digest

CANARY = "sparkdl_canary"  # a module that leaves a mark when it is imported
BOMB = 1 << 24  # bytes that compress to next to none
Mutation = Callable[[Path, Path, Random], None]  # of a saved stage, given another one and chance


class Payload:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.makedirs, (os.environ["SPARKDL_CANARY"], 0o777, True)


def plant(folder: Path, mark: Path) -> None:
    """Write the canary module to a folder, for whoever has that on sys.path; `mark` is made if any of it runs."""
    folder.mkdir(parents=True, exist_ok=True)
    code = "import os\nos.makedirs(os.environ['SPARKDL_CANARY'], exist_ok=True)\nclass Canary:\n    pass\n"
    (folder / f"{CANARY}.py").write_text(code)
    os.environ["SPARKDL_CANARY"] = str(mark)


def metadata_file(stage: Path) -> Path:
    """The one line of JSON."""
    return next((stage / "metadata").glob("part-*"))


def read_metadata(stage: Path) -> dict[str, Any]:
    """What a stage says of itself."""
    return json.loads(metadata_file(stage).read_text())


def write(path: Path, content: bytes) -> None:
    """A file without the checksum that Hadoop keeps beside it on local disks."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.write_bytes(content)


def write_metadata(stage: Path, metadata: Any, resign: bool) -> None:
    """Replace the line; with the right digests if it is to be resigned, as only a forger would do."""
    if resign and isinstance(metadata, dict):
        if isinstance(metadata.get("weightsFiles"), dict):
            files = {path.name: path.read_bytes() for path in (stage / "weights").glob("part-*")}
            metadata["weightsFiles"] = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        metadata["paramsDigest"] = params_digest(metadata)
    write(metadata_file(stage), json.dumps(metadata).encode())


def files(stage: Path) -> list[Path]:
    """Every file, in an order that does not depend on the disk."""
    return sorted(path for path in stage.rglob("*") if path.is_file())


def visible(stage: Path) -> list[Path]:
    """The files that are read."""
    return [path for path in files(stage) if path.name.startswith("part-")]


def flip_bytes(stage: Path, donor: Path, chance: Random) -> None:
    path = chance.choice(visible(stage))
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 1, 2, 8])):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content) if chance.random() < 0.2 else write(path, bytes(content))


def cut(stage: Path, donor: Path, chance: Random) -> None:
    path = chance.choice(visible(stage))
    content = path.read_bytes()
    kept = content[: chance.randrange(len(content))]
    write(path, kept if chance.random() < 0.8 else content + chance.randbytes(chance.randrange(1, 99)))


def delete(stage: Path, donor: Path, chance: Random) -> None:
    path = chance.choice([*files(stage), stage / "metadata", *stage.glob("weights")])
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def swap(stage: Path, donor: Path, chance: Random) -> None:
    if len(visible(stage)) == 1:  # with that of the donor, it would be the donor
        return cut(stage, donor, chance)
    path = chance.choice(visible(stage))
    others = [other for other in visible(donor) if other.parent.name == path.parent.name]
    write(path, chance.choice(others or visible(donor)).read_bytes())


def duplicate(stage: Path, donor: Path, chance: Random) -> None:
    path = chance.choice([*visible(stage), *visible(donor)])
    folder = chance.choice([stage / "metadata", *stage.glob("weights")])
    write(folder / f"part-0000{chance.randrange(1, 9)}-copy{path.suffix}", path.read_bytes())


def odd(chance: Random) -> Any:
    """A value that nobody saves."""
    nested: Any = []
    for _ in range(chance.choice([3, 50, 400])):
        nested = [nested] if chance.random() < 0.5 else {"type": "Network", "layers": nested}
    values = [None, True, -1, 0, 0.5, 2**31, 2**63, 10**400, 1e308, float("nan"), float("inf"), "", "x", "0", "\0"]
    values += ["\ud800", "9" * 9000, "../../etc", "file:/etc/passwd", "*", [], {}, [None], {"": {}}, nested, "{" * 999]
    values += [f"{CANARY}.Canary", {"type": f"{CANARY}.Canary"}, json.dumps({"type": f"{CANARY}.Canary"})]
    values += [json.dumps(nested), json.dumps({"type": "Network", "layers": [{"type": "Dense", "units": 10**18}]})]
    values += [[1] * 1000, "os.system", "__main__.Canary", {"__class__": "x"}, {"__reduce__": [1]}]
    return chance.choice(values)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON value with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in [(value, key), *places(value[key])]]


def edited(value: Any, chance: Random) -> None:
    """Change one thing in a JSON value, also within the JSON texts in it."""
    holder, key = chance.choice(places(value))
    text = holder[key]
    if isinstance(text, str) and text.startswith("{") and chance.random() < 0.9:
        inner = json.loads(text)
        edited(inner, chance)
        holder[key] = json.dumps(inner)
    elif chance.random() < 0.15:
        del holder[key]
    elif chance.random() < 0.15 and isinstance(holder, dict):
        holder[chance.choice([CANARY, "", "summary", "__class__", "uid", "params", "_paramMap", "copy"])] = odd(chance)
    elif isinstance(text, (int, float)) and chance.random() < 0.5:
        holder[key] = chance.choice([text + 1, -text, text * 10**9, float(text), str(text)])
    else:
        holder[key] = odd(chance)


def edit_json(stage: Path, donor: Path, chance: Random) -> None:
    metadata = read_metadata(stage)
    edited(metadata, chance)
    write_metadata(stage, metadata, resign=False)


def forge_json(stage: Path, donor: Path, chance: Random) -> None:
    metadata = read_metadata(stage)
    maps = [metadata["paramMap"], metadata["defaultParamMap"], metadata]
    edited(chance.choice([part for part in maps if part]), chance)
    write_metadata(stage, metadata, resign=True)


def edit_text(stage: Path, donor: Path, chance: Random) -> None:
    text = metadata_file(stage).read_text()
    deep = "[" * 100_000
    variants = [text[:-2] + f', "uid": {deep}' + "}", text + text, "\ufeff" + text, "\0" + text, deep, "null", "[]"]
    variants += ["1e999", "9" * 10_000, text.replace("0.01", "1e999"), text.replace(":", ": ", 3), text[:-2] + ',"a":}']
    variants += [text.replace('"uid"', '"uid": "other", "uid"'), "\n\n" + text, text.swapcase(), "{}", '"text"']
    chosen = chance.choice(variants)
    write(metadata_file(stage), chosen.encode(chance.choice(["utf-8", "utf-8", "utf-16", "utf-32"])))


def edit_format(stage: Path, donor: Path, chance: Random) -> None:
    metadata = read_metadata(stage)
    metadata["sparkdlFormat"] = chance.choice([0, 1, 3, 99, -1, "2", None, True, 1.0, 2.0, [2], 10**30])
    write_metadata(stage, metadata, resign=chance.random() < 0.5)


def edit_rows(stage: Path, donor: Path, chance: Random) -> None:
    path = next((stage / "weights").glob("part-*"), None)
    if path is None:
        return flip_bytes(stage, donor, chance)
    table = parquet.read_table(path)
    rows = table.to_pylist()
    row = chance.choice(rows)
    change = chance.randrange(9)
    if change == 0:
        chance.shuffle(rows)
    elif change == 1:
        rows.insert(chance.randrange(len(rows)), dict(row))
    elif change == 2:
        rows.remove(row)
    elif change == 3:
        row["dtype"] = chance.choice(["float64", "int32", "O", "U4", "f4,f4", "(9,)f4", "", "object", "float16", None])
    elif change == 4:
        row["shape"] = chance.choice([[], [0], [-1], [2**31 - 1] * 9, [4, None], None, row["shape"][::-1], [1] * 99])
    elif change == 5:
        row["part"] = chance.choice([1, -1, 2**31 - 1, None])
    elif change == 6:
        row["name"] = chance.choice(["", "/", "a/b/c", None, chance.choice(rows)["name"], f"{row['name']}/x"])
    elif change == 7:
        row["data"] = chance.choice([b"", None, row["data"][:-1], row["data"] * 2, chance.randbytes(len(row["data"]))])
    else:
        chance.choice(rows)["data"], row["data"] = row["data"], chance.choice(rows)["data"]
    parquet.write_table(pa.Table.from_pylist(rows, table.schema), path)
    write(path, path.read_bytes())
    write_metadata(stage, read_metadata(stage), resign=chance.random() < 0.7)


def old_format(stage: Path, donor: Path, chance: Random) -> None:
    metadata = read_metadata(stage)
    for name in ("weightsFiles", "paramsDigest"):
        metadata.pop(name, None)
    write_metadata(stage, metadata | {"sparkdlFormat": 1}, resign=False)
    if path := next((stage / "weights").glob("part-*"), None):
        content = bytearray(path.read_bytes())
        for _ in range(chance.choice([0, 1, 4])):
            content[chance.randrange(len(content))] = chance.randrange(256)
        write(path, bytes(content))


def booby_trap(stage: Path, donor: Path, chance: Random) -> None:
    trap = pickle.dumps(Payload())
    folder = stage / chance.choice(["", "metadata", "weights"])
    folder.mkdir(exist_ok=True)
    code = f"import os; os.makedirs({os.environ['SPARKDL_CANARY']!r}, exist_ok=True)\n".encode()
    name = chance.choice(
        ["data.pkl", "weights.npy", "__init__.py", "part-00001.py", "part-00002.parquet", "part-00003.gz", "x=1/part-0"]
    )
    content = gzip.compress(bytes(BOMB), 1) if name.endswith("gz") else code if name.endswith(".py") else trap
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    if chance.random() < 0.3:
        chosen = chance.choice(visible(stage))
        write(chosen, content)


def forge_parquet(stage: Path, donor: Path, chance: Random) -> None:
    path = next((stage / "weights").glob("part-*"), None)
    if path is None:
        return booby_trap(stage, donor, chance)
    table = parquet.read_table(path)
    kind = chance.randrange(4)
    if kind == 0:  # what pyarrow before 14.0.1 unpickled (CVE-2023-47248)
        extension = {b"ARROW:extension:name": b"arrow.py_extension_type"}
        extension[b"ARROW:extension:metadata"] = pickle.dumps(Payload())
        index = chance.randrange(table.num_columns)
        table = table.cast(table.schema.set(index, table.schema.field(index).with_metadata(extension)))
    elif kind == 1:  # a small file of much
        bomb = {"name": "bomb", "dtype": "uint8", "shape": [BOMB], "part": 0, "data": bytes(BOMB)}
        table = pa.concat_tables([table, pa.Table.from_pylist([bomb], table.schema)])
    elif kind == 2:
        table = table.drop_columns([chance.choice(table.column_names)])
    else:
        table = table.append_column(chance.choice(["name", "more"]), pa.array(["x"] * len(table)))
    parquet.write_table(table, path, compression=chance.choice(["none", "gzip", "zstd"]))
    write(path, path.read_bytes())
    write_metadata(stage, read_metadata(stage), resign=True)


DAMAGE: dict[str, Mutation] = {
    each.__name__: each
    for each in (flip_bytes, cut, delete, swap, duplicate, edit_json, edit_text, booby_trap, old_format)
}
FORGERY: dict[str, Mutation] = {
    each.__name__: each for each in (forge_json, edit_format, edit_rows, forge_parquet)
}  # may come with the right digests, and then is what was saved, for all a reader can know
MUTATIONS = DAMAGE | FORGERY
