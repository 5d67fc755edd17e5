"""What a few words say of layers, which stand for all within them and for those that are numbered."""

from __future__ import annotations

import pytest

from sparkdl.layer_paths import check_names, stands_for, value_at


@pytest.mark.parametrize(
    ("name", "path", "stands"),
    [
        ("block_1", "block_1", True),
        ("block_1", "block_1/dense_0/kernel", True),
        ("block_1", "block_10", False),
        ("block_1", "block_1_0/dense_0", True),
        ("block", "block_1/dense_0", True),
        ("block", "block_out/dense_0", False),
        ("block", "blocks_1", False),
        ("dense_0", "block_1/dense_0", False),
        ("block_1/dense", "block_1/dense_0/bias", True),
        ("b.ock_1", "block_1", False),
    ],
)
def test_a_name_stands_for_what_lies_within_and_for_what_is_numbered(name: str, path: str, stands: bool) -> None:
    assert stands_for(name, path) is stands


def test_of_several_names_the_longest_counts() -> None:
    values = {"block_1/dense_0": 3, "block": 1, "block_1": 2}
    found = {path: value_at(values, path, 0) for path in ("head", "block_0", "block_1/norm", "block_1/dense_0/bias")}
    assert found == {"head": 0, "block_0": 1, "block_1/norm": 2, "block_1/dense_0/bias": 3}


def test_a_name_that_stands_for_nothing_is_refused_with_the_nearest() -> None:
    paths = ["stem", "layer1_0", "layer1_0/conv1", "layer2_0", "head"]
    check_names("factors", ["layer1", "layer2_0"], paths)
    with pytest.raises(
        ValueError, match=r"^factors names 'layer3', which .* weights; nearest are layer2_0, layer1_0, .*conv1\.$"
    ):
        check_names("factors", ["layer1", "layer3"], paths)
    with pytest.raises(ValueError, match=r"nearest are stem, layer1_0, layer2_0, head\.$"):
        check_names("factors", ["zzz"], paths)
    with pytest.raises(ValueError, match=r"nearest are none, as the network trains none\.$"):
        check_names("factors", ["zzz"], [])
