"""Specs are values: equal, hashable, printed as written, and the same after a journey through JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import FrozenInstanceError, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparkdl.initializers import Constant, HeNormal, Initializer, TruncatedNormal, Zeros
from sparkdl.layers import Dense, Layer
from sparkdl.losses import Loss, SoftmaxCrossEntropy
from sparkdl.optimizers import Adam, Optimizer
from sparkdl.schedules import ConstantSchedule, CosineDecay, Schedule
from sparkdl.specs import Spec, is_number
from sparkdl.synonyms import SPECS as SPECS_ELSEWHERE
from sparkdl.synonyms import spec_meant
from sparkdl.training import EarlyStopping


@dataclass(frozen=True)
class Shelf(Spec):
    """A spec from outside sparkdl, with every kind of field."""

    size: tuple[int, ...]
    label: str | None = None
    open: bool = False
    depth: float = 1.0
    content: Spec | None = None
    books: tuple[Spec, ...] = field(default=(), kw_only=True)


FULL = Shelf((2, 3), "a", True, 0.5, Constant(2.0), books=(Zeros(), Shelf((1,))))
SPECS = [Shelf((2, 3)), FULL, Dense(3, name="last"), HeNormal(), Adam(schedule=CosineDecay(end=0.1), clip_norm=1.0)]


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_json_text_gives_an_equal_spec(spec: Spec) -> None:
    text = json.dumps(spec.to_json())
    for back in (Spec.from_json(text), Spec.from_json(json.loads(text)), Spec.of(text), Spec.of(json.loads(text))):
        assert back == spec and type(back) is type(spec) and hash(back) == hash(spec)


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_repr_is_how_the_spec_is_written(spec: Spec) -> None:
    assert eval(repr(spec)) == spec


def test_json_and_repr_leave_defaults_out() -> None:
    assert TruncatedNormal(0.1).to_json() == {"type": "TruncatedNormal", "stddev": 0.1}
    assert repr(Adam(beta1=0.9, epsilon=1e-5)) == "Adam(epsilon=1e-05)"
    assert FULL.to_json() == {
        "type": f"{__name__}.Shelf",
        "size": [2, 3],
        "label": "a",
        "open": True,
        "depth": 0.5,
        "content": {"type": "Constant", "value": 2.0},
        "books": [{"type": "Zeros"}, {"type": f"{__name__}.Shelf", "size": [1]}],
    }


@pytest.mark.parametrize("name", SPECS_ELSEWHERE)
def test_what_is_called_otherwise_elsewhere_is_the_name_of_what_there_is(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}'.* choose one of"):
        (Optimizer if isinstance(Spec.of(spec_meant(name)), Optimizer) else Loss).of(name)


def test_lists_and_numpy_numbers_become_plain_values() -> None:
    shelf = Shelf([np.int64(2), 3], depth=np.float32(0.5), open=np.bool_(True))  # type: ignore[arg-type, list-item]
    assert shelf == Shelf((2, 3), open=True, depth=0.5)
    assert [type(value) for value in (*shelf.size, shelf.depth, shelf.open)] == [int, int, float, bool]
    assert Spec.from_json(json.dumps(shelf.to_json())) == shelf


@pytest.mark.parametrize(
    "other", [Shelf((3, 2)), Shelf((2, 3), "b"), Shelf((2, 3), content=Zeros()), Zeros(), (2, 3)], ids=repr
)
def test_different_specs_differ(other: Any) -> None:
    assert Shelf((2, 3)) != other
    assert len({Shelf((2, 3)), Shelf((2, 3)), other}) == 2


def test_specs_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        HeNormal().name = "other"  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        Constant(1.0).value = 2.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("family", "name", "spec"),
    [
        (Initializer, "he_normal", HeNormal()),
        (Initializer, "HeNormal", HeNormal()),
        (Loss, "softmax_cross_entropy", SoftmaxCrossEntropy()),
        (Optimizer, "adam", Adam()),
        (Schedule, "constant_schedule", ConstantSchedule()),
        (Spec, "adam", Adam()),
        (Optimizer, Adam(0.5), Adam(0.5)),
        (Optimizer, {"type": "Adam", "beta1": 0.5}, Adam(0.5)),
        (Optimizer, ' {"type": "Adam", "schedule": {"type": "CosineDecay"}}', Adam(schedule=CosineDecay())),
    ],
)
def test_of_accepts_what_users_write(family: type[Spec], name: Any, spec: Spec) -> None:
    assert family.of(name) == spec


@pytest.mark.parametrize(
    ("family", "value", "message"),
    [
        (Optimizer, "adamm", "Optimizer is expected, received 'adamm'; choose one of AMSGrad, AdaBelief, .*SGD"),
        (
            Loss,
            "cross_entropy",
            "received 'cross_entropy', which is called 'softmax_cross_entropy' here; choose one of A",
        ),
        (Loss, "BCEWithLogitsLoss", "which is called 'sigmoid_cross_entropy' here"),
        (Loss, "HuberLoss", "which is called 'huber' here"),
        (Loss, "MeanSquaredLogarithmicError", "which is called 'squared_logarithmic_error' here"),
        (Loss, "GaussianNLLLoss", "which is called 'gaussian_likelihood' here"),
        (Loss, "mixture_density", r"'mixture_density' needs arguments: .*components.*; write MixtureDensity\(\.\.\.\)"),
        (Loss, "gradient_descent", "received 'gradient_descent'; choose"),
        (Optimizer, "GradientDescentOptimizer", "which is called 'sgd' here"),
        (Loss, "class_loss", "Loss is expected, received 'class_loss'; choose one of AbsoluteError, .*Hinge, Huber"),
        (Loss, "HingeLoss", "received 'HingeLoss', which is called 'hinge' here; choose"),
        (Optimizer, "heavy_ball", "Optimizer is expected, received 'heavy_ball'"),
        (Initializer, "variance_scaling", "Initializer is expected, received 'variance_scaling'"),
        (Schedule, "timed_schedule", "Schedule is expected"),
        (Optimizer, "he_normal", "Optimizer is expected, received 'he_normal'"),
        (Optimizer, HeNormal(), r"Optimizer is expected, received HeNormal\(\)"),
        (Optimizer, 3, "Optimizer is expected, received 3"),
        (EarlyStopping, "loss", r"EarlyStopping is expected, received 'loss'; write EarlyStopping\(\.\.\.\)\."),
        (Initializer, "constant", r"'constant' needs arguments: .*value.*; write Constant\(\.\.\.\)"),
        (Layer, "elsewhere.Gate", "'Gate' is defined in module 'elsewhere', which is not imported; import it first"),
        (Optimizer, "{", "Optimizer is read from JSON, but this is not JSON"),
        (Optimizer, {"type": "HeNormal"}, "HeNormal is another kind of spec than Optimizer"),
        (Optimizer, {"type": "Adam", "beta3": 1}, r"Adam has no field 'beta3' \(its fields: .*beta1.*newer sparkdl"),
        (Optimizer, {"type": "Adam", "beta1": 3}, "beta1 of Adam must be a number"),
        (Layer, {"type": "Dense"}, "Dense cannot be built from .*units"),
        (Layer, {"units": 3}, "Layer in JSON is an object with a 'type', received {'units': 3}"),
        (Layer, {"type": 5}, "object with a 'type'"),
        (Layer, {"type": "Hologram"}, "Layer is expected, received 'Hologram'; choose one of .*Dense"),
        (Layer, {"type": "elsewhere.Gate"}, "module 'elsewhere', which is not imported"),
    ],
)
def test_errors_say_what_was_expected(family: type[Spec], value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        family.of(value)


def test_a_subclass_of_a_user_s_hides_no_name_that_may_be_chosen() -> None:
    class Denser(Dense):
        pass

    with pytest.raises(ValueError, match="choose one of .*Dense") as raised:
        Layer.of("hologram")
    assert Denser.__qualname__ not in str(raised.value)


@pytest.mark.parametrize("text", ["[1, 2]", "3", '"adam"'])
def test_json_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="object with a 'type'"):
        Optimizer.from_json(text)


def test_reading_json_imports_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted.py").write_text("from sparkdl.specs import Spec\n\nclass Machine(Spec): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="import it first"):
        Spec.from_json('{"type": "planted.Machine"}')
    assert "planted" not in sys.modules


def test_names_offered_leave_out_bases_and_foreign_classes() -> None:
    with pytest.raises(ValueError) as raised:
        Initializer.of("nothing")
    offered = str(raised.value).split("choose one of ")[1].rstrip(".").split(", ")
    assert {"Zeros", "HeNormal", "Orthogonal"} <= set(offered)
    assert not {"VarianceScaling", "Initializer", "Shelf"} & set(offered)


@dataclass(frozen=True, slots=True)
class Slotted(Layer):
    gain: float = 1.0


def scaled_by(factor: float) -> type[Layer]:
    @dataclass(frozen=True)
    class Scaled(Layer):
        def forward(self, weights: Any, x: Any) -> Any:
            return x * factor

    return Scaled


def test_a_spec_whose_class_was_made_anew_by_its_function_is_not_taken_for_the_new_one() -> None:
    one = scaled_by(2.0)()
    assert type(Spec.from_json(one.to_json())) is type(one)
    other = scaled_by(3.0)()
    assert type(Spec.from_json(other.to_json())) is type(other)
    with pytest.raises(ValueError, match=r"scaled_by\(\) has made another class 'Scaled' .*make what differs a field"):
        one.to_json()


@pytest.mark.parametrize("value", [np.ones(2), len, {1, 2}, {"a": 1}, (1, (2, b"3"))], ids=repr)
def test_options_that_json_cannot_hold_are_named(value: Any) -> None:
    with pytest.raises(ValueError, match=r"depth of Shelf must be a number, a string, .*received \w+ .*in a method"):
        Shelf((1,), depth=value).to_json()


def test_a_number_is_finite_as_a_float() -> None:
    assert all(map(is_number, (0, -3, 2.5, np.float64(1.5), sys.float_info.max)))
    wrong = (10**400, -(10**400), float("nan"), float("inf"), True, "1", None, 1j)
    assert [value for value in wrong if is_number(value)] == []
    assert is_number(2, least=2) and not is_number(1.9, least=2)


def test_options_that_json_would_lose_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Gained defines __init__, .*declare each option, as in 'k: float = 1.0'"):

        class Gained(Layer):
            def __init__(self, gain: float = 1.0) -> None:
                super().__init__()
                object.__setattr__(self, "gain", gain)

    assert Spec.from_json(Slotted(2.0).to_json()) == Slotted(2.0)
