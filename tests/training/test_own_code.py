"""Two versions of a user's own classes are told apart by all that they compute with, and by nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparkdl import Network, specs, training
from sparkdl.classes import own_classes
from sparkdl.layers import Dense, Tanh
from sparkdl.training import Checkpoints
from sparkdl.training.checkpoints.own_code import Code, code_of

# A user's module; the tests change a line of it. Strings and sets, since each process orders these anew.
SOURCE = '''
import functools
import jax
import jax.numpy as jnp
import numpy as np
from dataclasses import dataclass
from sparkdl.layers.base import Layer, jitted

LIMIT = 2.0
TABLE = np.array([1.0, 2.0, 3.0])
WORDS = {"a": ["b", {"c", "d", "e"}]}
UNUSED = 1

@jax.jit
def squashed(x):
    return LIMIT * jnp.tanh(x / LIMIT)

def made(power):
    def raised(x):
        return x**power
    return raised

cubed = made(3)
scaled = functools.partial(jnp.multiply, 0.5)
mapped = jax.vmap(lambda row: row * 2, in_axes=0)

@jax.custom_vjp
def passed(x):
    return x

passed.defvjp(lambda x: (x, None), lambda kept, dy: (dy * 1.5,))

class Helper:
    """One of the user's own."""
    def __init__(self, factor):
        self.factor = factor

    def times(self, x):
        return self.factor * x

HELPER = Helper(2.0)

class Mixin:
    def shifted(self, x, by=0.25):
        return x + by

@dataclass(frozen=True)
class Own(Mixin, Layer):
    gain: float = 1.0

    def output_shape(self, input_shape):
        return input_shape

    @property
    def sign(self):
        return 1.0

    @jitted
    def forward(self, weights, x):
        """y = f(x)."""
        if "c" in {"c", "d", "e", "f"} and WORDS:
            x = HELPER.times(passed(scaled(mapped(cubed(squashed(x))))))
        return self.sign * self.gain * self.shifted(x) + TABLE.sum()
'''

CHANGES = [
    ("", "", False),
    ("\nLIMIT = 2.0", "\n# Lines below move.\n\n\nLIMIT = 2.0", False),
    ('"""y = f(x)."""', '"""y = f(x), that is."""', False),
    ('"""y = f(x)."""', "", False),
    ("UNUSED = 1", "UNUSED = 2", False),
    ("def raised(x):\n        return x**power", "def raised(z):\n        return z**power", True),  # a keyword
    ('{"c", "d", "e", "f"}', '{"f", "e", "d", "c"}', False),
    ('["b", {"c", "d", "e"}]', '["b", {"e", "d", "c"}]', False),
    ("self.sign *", "2 * self.sign *", True),
    ("+ TABLE", "- TABLE", True),
    ("TABLE.sum()", "TABLE.max()", True),
    ("gain: float = 1.0", "gain: float = 1.5", True),
    ("LIMIT = 2.0", "LIMIT = 3.0", True),
    ("3.0])", "4.0])", True),
    ("3.0])", '3.0], "float32")', True),
    ('{"c", "d", "e", "f"}', '{"c", "d", "e"}', True),
    ('["b", {"c", "d", "e"}]', '["b", {"c", "d"}]', True),
    ("jnp.tanh", "jnp.sin", True),
    ("made(3)", "made(2)", True),
    ("x**power", "power**x", True),
    ("0.5)", "0.6)", True),
    ("row * 2,", "row * 4,", True),
    ("in_axes=0", "in_axes=1", True),
    ("dy * 1.5", "dy * 2.5", True),
    ("return self.factor * x", "return self.factor + x", True),
    ("Helper(2.0)", "Helper(3.0)", True),
    ("by=0.25", "by=0.5", True),
    ("return x + by", "return x - by", True),
    ("        return 1.0", "        return -1.0", True),
]


def defined(source: str, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The module of that source; what it registers is forgotten after the test."""
    monkeypatch.setattr(specs, "registry", specs.registry.copy())
    module = types.ModuleType("users_own")
    monkeypatch.setitem(sys.modules, "users_own", module)
    exec(compile(source, "users_own.py", "exec", dont_inherit=True), vars(module))
    return module


def code(source: str, monkeypatch: pytest.MonkeyPatch) -> Code:
    return code_of([defined(source, monkeypatch).Own])


@pytest.mark.parametrize("before, after, differs", CHANGES, ids=lambda value: None if value is True else value)
def test_a_change_counts_if_the_class_computes_with_it(
    before: str, after: str, differs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert before in SOURCE
    old, new = code(SOURCE, monkeypatch), code(SOURCE.replace(before, after), monkeypatch)
    assert (old.digest != new.digest) == differs
    assert old.unknown == new.unknown == []


def test_every_process_comes_to_the_same_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a compiled module too, and whatever the order of its sets."""
    (tmp_path / "users_own.py").write_text(SOURCE)
    program = (
        "import users_own; from sparkdl.training.checkpoints.own_code import code_of; print(*code_of([users_own.Own]))"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONPATH": f"{tmp_path}:{Path(training.__file__).parents[2]}", "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for seed in "12"
    ]
    assert told == [f"{code(SOURCE, monkeypatch).digest} []\n"] * 2


def test_modules_are_looked_at_as_far_as_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOURCE.replace("+ TABLE.sum()", "+ parts.HALF").replace("import functools", "import functools, parts")
    parts = types.ModuleType("parts")
    monkeypatch.setitem(sys.modules, "parts", parts)
    digests = []
    for half, other in ((0.5, 1), (0.5, 2), (0.6, 2)):
        vars(parts).update(HALF=half, OTHER=other)
        digests.append(code(source, monkeypatch).digest)
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    "value, said",
    [
        ("__import__('threading').Lock()", "Own.forward.TABLE (a _thread.lock)"),
        ("(row for row in ())", "Own.forward.TABLE (a generator)"),
        ("compiled.Table", "Own.forward.TABLE (a type)"),
    ],
)
def test_what_cannot_be_looked_at_is_named(value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = types.ModuleType("compiled")
    vars(compiled).update(__file__="/somewhere/compiled.so", Table=type("Table", (), {"__module__": "compiled"}))
    monkeypatch.setitem(sys.modules, "compiled", compiled)
    source = SOURCE.replace("np.array([1.0, 2.0, 3.0])", value).replace("import jax\n", "import compiled, jax\n")
    assert code(source, monkeypatch).unknown == [said]


def test_own_classes_are_found_in_whatever_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    own = defined(SOURCE, monkeypatch).Own
    network = Network([Network([own(gain=2.0)]), Dense(2)], input_shape=(3,))
    assert list(own_classes((network, 1))) == [("users_own.Own", own)]


# A run

X = np.random.default_rng(3).normal(size=(20, 3)).astype("float32")


def fit(own: Any, folder: Path, epochs: int = 2) -> training.Result:
    network = Network([Dense(3), own(), Dense(2)], input_shape=(3,))
    return training.fit(network, (X, X[:, 0] > 0), epochs=epochs, checkpoints=Checkpoints(str(folder)))


def test_a_run_goes_on_with_the_same_code_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fit(defined(SOURCE, monkeypatch).Own, tmp_path, 1).resumed is None
    same = fit(defined(SOURCE, monkeypatch).Own, tmp_path)
    assert (same.resumed, same.notes) == ([1, 0], [])
    mended = fit(defined(SOURCE.replace("LIMIT = 2.0", "LIMIT = 3.0"), monkeypatch).Own, tmp_path)
    assert mended.resumed is None
    assert "holds checkpoints of other runs only (with another network, other code of its own" in mended.notes[0]


@pytest.mark.parametrize("module", ["sparkdl", "jax"])
def test_a_run_goes_on_with_the_same_versions_only(
    tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit(Tanh, tmp_path, 1)
    monkeypatch.setattr(sys.modules[module], "__version__", "0.0.1")
    other = fit(Tanh, tmp_path)
    assert other.resumed is None and "or another version of sparkdl or jax" in other.notes[0]


def test_a_run_that_goes_on_says_what_of_its_code_it_cannot_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SOURCE.replace("UNUSED = 1", "import threading; LOCK = threading.Lock()").replace("and WORDS", "and LOCK")
    fit(defined(source, monkeypatch).Own, tmp_path, 1)
    resumed = fit(defined(source, monkeypatch).Own, tmp_path)
    assert resumed.resumed == [1, 0]
    assert resumed.notes == [
        f"The run went on from a checkpoint in {str(tmp_path)!r}, though whether its code is the same could not be "
        "told of Own.forward.LOCK (a _thread.lock); name another directory if that has changed."
    ]
