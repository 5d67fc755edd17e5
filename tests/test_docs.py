"""Every example in a docstring gives what it says; those that need a Spark session are run with Spark's tests."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import jax
import pytest

import sparkdl

pytestmark = pytest.mark.usefixtures("unoptimized")

PACKAGE = Path(sparkdl.__file__).parent
PATHS = [path.relative_to(PACKAGE.parent).with_suffix("") for path in sorted(PACKAGE.rglob("*.py"))]
MODULES = [".".join(path.parts).removesuffix(".__init__") for path in PATHS if "spark" not in path.parts]


def examples(name: str) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder().find(import_module(name)) if test.examples]


TESTS = [
    test
    for name in MODULES
    if name != "sparkdl.quickstart"
    for test in examples(name)
    if not any("spark." in example.source for example in test.examples)
]


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_examples_give_what_they_say(
    test: doctest.DocTest, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # as a user has it
        failed, attempted = doctest.DocTestRunner().run(test)
    assert attempted
    assert not failed, capsys.readouterr().out


def test_the_ways_to_begin_have_an_example() -> None:
    assert {"sparkdl.network.Network", "sparkdl.training.trainer.fit"} <= {test.name for test in TESTS}
