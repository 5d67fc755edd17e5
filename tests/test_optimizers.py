"""Every optimizer against its formula in NumPy's float64, and what all of them share: decay, clipping, schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparkdl import optimizers
from sparkdl.optimizers import (
    LAMB,
    LBFGS,
    SGD,
    AdaBelief,
    AdaDelta,
    AdaGrad,
    Adam,
    AdaMax,
    AdamW,
    AMSGrad,
    Lion,
    Momentum,
    NAdam,
    Nesterov,
    Optimizer,
    RAdam,
    RMSProp,
)
from sparkdl.schedules import CosineDecay, ExponentialDecay, StepDecay

STEPS, STEP_SIZE = 8, 0.05  # RAdam's sixth step is the first that it rectifies
RANDOM = np.random.default_rng(11)
KERNEL, BIAS = RANDOM.normal(size=(2, 3)), np.array([0.0, 0.0])
WEIGHTS = {"dense_0": {"kernel": KERNEL, "bias": BIAS}, "relu_1": {}, "inner": {"dense_0": {"kernel": KERNEL[:, :1]}}}
GRADIENTS = [jax.tree.map(lambda array: RANDOM.normal(scale=2, size=array.shape), WEIGHTS) for _ in range(STEPS)]


Gradients = list[np.ndarray]  # of one array, step by step
Rule = Callable[[Gradients], Iterator[Any]]


def run(
    optimizer: Optimizer, gradients: list[Any] = GRADIENTS, weights: Any = WEIGHTS, dtype: str = "float64"
) -> list[Any]:
    """The weights after each step."""
    transformation = optimizer.transformation(STEP_SIZE, total_steps=10, steps_per_epoch=2)
    weights = jax.tree.map(lambda array: jnp.array(array, dtype), weights)
    state, update, history = transformation.init(weights), jax.jit(transformation.update), []
    for gradient in gradients:
        steps, state = update(jax.tree.map(lambda array: jnp.array(array, dtype), gradient), state, weights)
        weights = optax.apply_updates(weights, steps)
        history.append(weights)
    return history


def assert_same(produced: Any, expected: Any, **tolerance: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), produced, expected)


# Each rule is called with the gradients of one array in turn, and gives what is subtracted per unit of step size.


def momentum(
    gradients: Gradients, nesterov: bool = False, factor: Callable[[int], float] = lambda step: 1.0
) -> Iterator[Any]:
    u: Any = 0.0
    for step, g in enumerate(gradients):
        decay = 0.8 * factor(step)
        u = decay * u + g
        yield g + decay * u if nesterov else u


def adagrad(gradients: Gradients) -> Iterator[Any]:
    total: Any = 0.5
    for g in gradients:
        total = total + g**2
        yield g / np.sqrt(total + 1e-3)


def rmsprop(gradients: Gradients) -> Iterator[Any]:
    v: Any = 0.0
    u: Any = 0.0
    for g in gradients:
        v = 0.9 * v + 0.1 * g**2
        u = 0.7 * u + g / (np.sqrt(v) + 1e-3)
        yield u


def adadelta(gradients: Gradients) -> Iterator[Any]:
    v: Any = 0.0
    d: Any = 0.0
    for g in gradients:
        v = 0.7 * v + 0.3 * g**2
        u = g * np.sqrt(d + 1e-3) / np.sqrt(v + 1e-3)
        d = 0.7 * d + 0.3 * u**2
        yield u


def moments(gradients: Gradients, kind: str) -> Iterator[Any]:
    b1, b2, epsilon = 0.8, 0.95, 1e-3
    m: Any = 0.0
    v: Any = 0.0
    s: Any = 0.0
    largest: Any = 0.0
    for t, g in enumerate(gradients, start=1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
        if kind == "radam":
            longest = 2 / (1 - b2) - 1
            rho = longest - 2 * t * b2**t / (1 - b2**t)
            if rho < 5:
                yield m_hat
                continue
            m_hat = m_hat * np.sqrt((rho - 4) * (rho - 2) * longest / ((longest - 4) * (longest - 2) * rho))
        if kind == "adabelief":
            s = b2 * s + (1 - b2) * (g - m) ** 2 + epsilon
            v_hat = s / (1 - b2**t)
        if kind == "adamax":
            largest = np.maximum(b2 * largest, np.abs(g) + epsilon)
            yield m_hat / largest
            continue
        if kind == "nadam":
            m_hat = b1 * m / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1**t)
        if kind == "amsgrad":
            largest = np.maximum(largest, v_hat)
            v_hat = largest
        yield m_hat / (np.sqrt(v_hat) + epsilon)


def lion(gradients: Gradients) -> Iterator[Any]:
    m: Any = 0.0
    for g in gradients:
        yield np.sign(0.8 * m + 0.2 * g)
        m = 0.95 * m + 0.05 * g


MOMENTS: dict[str, Any] = {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}
TABLE: dict[str, tuple[Optimizer, Rule]] = {
    "sgd": (SGD(), iter),
    "momentum": (Momentum(0.8), momentum),
    "nesterov": (Nesterov(0.8), lambda gradients: momentum(gradients, nesterov=True)),
    "momentum, scheduled": (
        Momentum(0.8, momentum_schedule=ExponentialDecay(1, 0.5)),
        lambda gradients: momentum(gradients, factor=lambda step: 0.5**step),
    ),
    "nesterov, scheduled over the run": (
        Nesterov(0.8, momentum_schedule="cosine_decay"),
        lambda gradients: momentum(gradients, True, lambda step: (1 + np.cos(np.pi * step / 10)) / 2),
    ),
    "adagrad": (AdaGrad(1e-3, initial_accumulator=0.5), adagrad),
    "rmsprop": (RMSProp(0.9, 1e-3, momentum=0.7), rmsprop),
    "adadelta": (AdaDelta(0.7, 1e-3), adadelta),
    "adam": (Adam(**MOMENTS), lambda gradients: moments(gradients, "adam")),
    "adamw": (AdamW(**MOMENTS, weight_decay=0.0), lambda gradients: moments(gradients, "adam")),
    "adamax": (AdaMax(**MOMENTS), lambda gradients: moments(gradients, "adamax")),
    "nadam": (NAdam(**MOMENTS), lambda gradients: moments(gradients, "nadam")),
    "amsgrad": (AMSGrad(**MOMENTS), lambda gradients: moments(gradients, "amsgrad")),
    "radam": (RAdam(**MOMENTS), lambda gradients: moments(gradients, "radam")),
    "adabelief": (AdaBelief(**MOMENTS), lambda gradients: moments(gradients, "adabelief")),
    "lion": (Lion(0.8, 0.95), lion),
}
EVERY_RULE = pytest.mark.parametrize(("optimizer", "rule"), TABLE.values(), ids=TABLE.keys())


def expected(
    rule: Rule,
    decay: float = 0.0,
    factor: Callable[[int], float] = lambda step: 1.0,
) -> list[Any]:
    leaves, structure = jax.tree.flatten(WEIGHTS)
    gradients = [jax.tree.leaves(gradient) for gradient in GRADIENTS]
    columns = []
    for index, w in enumerate(leaves):
        column = []
        for step, u in enumerate(rule([gradient[index] for gradient in gradients])):
            w = w - STEP_SIZE * factor(step) * (u + decay * w)
            column.append(w)
        columns.append(column)
    return [jax.tree.unflatten(structure, row) for row in zip(*columns, strict=True)]


def test_every_optimizer_is_tested() -> None:
    public = {found for found in vars(optimizers).values() if isinstance(found, type) and issubclass(found, Optimizer)}
    leaves = {found for found in public if not found.__subclasses__() and found is not LBFGS}  # LBFGS: test_lbfgs.py
    assert {type(optimizer) for optimizer, _ in TABLE.values()} | {LAMB} == leaves


@EVERY_RULE
@pytest.mark.usefixtures("float64")
def test_steps_follow_the_formula(optimizer: Optimizer, rule: Rule) -> None:
    assert_same(run(optimizer), expected(rule), rtol=1e-9)


@EVERY_RULE
@pytest.mark.usefixtures("float64")
def test_decay_is_decoupled_and_scheduled_with_the_step(optimizer: Optimizer, rule: Rule) -> None:
    decayed = type(optimizer).from_json(
        {**optimizer.to_json(), "weight_decay": 0.1, "schedule": StepDecay(1).to_json()}
    )
    assert_same(run(decayed), expected(rule, decay=0.1, factor=lambda step: 0.1 ** (step // 2)), rtol=1e-6)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", [SGD, AdamW, LAMB, Lion])
def test_what_is_named_does_not_decay(kind: type[Optimizer]) -> None:
    """By name of a weight or of a layer; all else decays as it did."""
    ((layer, weights),) = list(WEIGHTS.items())[:1]
    name = next(iter(weights))
    whole, none = (run(kind(weight_decay=decay)) for decay in (0.1, 0.0))
    for spared in ([name], [f"{layer}/{name}"], [layer]):
        part = run(kind(weight_decay=0.1, no_decay=spared))
        for produced, decayed, plain in zip(part, whole, none, strict=True):
            for path, array in jax.tree.leaves_with_path(produced):
                names = [entry.key for entry in path]
                exempt = {*names, "/".join(names)} & set(spared)
                like = dict(jax.tree.leaves_with_path(plain if exempt else decayed))[path]
                np.testing.assert_array_equal(array, like)


@pytest.mark.usefixtures("float64")
def test_lamb_scales_the_decayed_step_to_the_norm_of_each_array() -> None:
    leaves, structure = jax.tree.flatten(WEIGHTS)
    rules = [moments([jax.tree.leaves(gradient)[i] for gradient in GRADIENTS], "adam") for i in range(len(leaves))]
    for produced in run(LAMB(**MOMENTS, weight_decay=0.1)):
        for i, w in enumerate(leaves):
            u = next(rules[i]) + 0.1 * w
            ratio = np.linalg.norm(w) / np.linalg.norm(u)
            leaves[i] = w - STEP_SIZE * (ratio or 1.0) * u  # weights of norm 0 take the plain step
        assert_same(produced, jax.tree.unflatten(structure, leaves), rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", [*(case[0] for case in TABLE.values()), LAMB()], ids=lambda case: repr(case)[:9])
def test_steps_and_state_keep_the_dtype_of_the_weights(optimizer: Optimizer, dtype: str) -> None:
    transformation = optimizer.transformation(STEP_SIZE, 10, 2)
    weights = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, dtype), WEIGHTS)
    state = jax.eval_shape(transformation.init, weights)
    steps, after = jax.eval_shape(transformation.update, weights, state, weights)
    assert steps == weights
    assert after == state
    assert {leaf.dtype for leaf in jax.tree.leaves(state)} <= {jnp.dtype(dtype), jnp.dtype("int32")}


@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [
        (Momentum(), "SGD", {"momentum": 0.9}),
        (Nesterov(), "SGD", {"momentum": 0.9, "nesterov": True}),
        (AdaGrad(), "Adagrad", {}),
        (RMSProp(), "RMSprop", {}),
        (RMSProp(momentum=0.5), "RMSprop", {"momentum": 0.5}),
        (AdaDelta(), "Adadelta", {}),
        (Adam(), "Adam", {}),
        (Adam(clip_norm=1.0, weight_decay=0.3), "AdamW", {"weight_decay": 0.3}),
        (AdamW(), "AdamW", {}),
        (AdaMax(), "Adamax", {}),
        (RAdam(), "RAdam", {}),
        (RAdam(beta2=0.9), "RAdam", {"betas": (0.9, 0.9)}),
    ],
    ids=repr,
)
@pytest.mark.usefixtures("float64")
def test_defaults_and_formula_agree_with_pytorch(ours: Optimizer, theirs: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    leaves = [torch.tensor(array, requires_grad=True) for array in jax.tree.leaves(WEIGHTS)]
    oracle = getattr(torch.optim, theirs)(leaves, lr=STEP_SIZE, **options)
    for gradient in GRADIENTS:
        for leaf, array in zip(leaves, jax.tree.leaves(gradient), strict=True):
            leaf.grad = torch.tensor(array)
        if ours.clip_norm:
            torch.nn.utils.clip_grad_norm_(leaves, ours.clip_norm)
        oracle.step()
    tolerance = 1e-5 if ours.clip_norm else 1e-8  # PyTorch adds 1e-6 to the norm
    assert_same(jax.tree.leaves(run(ours)[-1]), [leaf.detach().numpy() for leaf in leaves], rtol=tolerance, atol=1e-9)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.usefixtures("float64")
def test_a_momentum_of_each_step_is_as_pytorch_takes_it(nesterov: bool) -> None:
    torch = pytest.importorskip("torch")
    leaves = [torch.tensor(array, requires_grad=True) for array in jax.tree.leaves(WEIGHTS)]
    oracle = torch.optim.SGD(leaves, lr=STEP_SIZE, momentum=0.9, nesterov=nesterov)
    for step, gradient in enumerate(GRADIENTS):
        oracle.param_groups[0]["momentum"] = 0.9 * 0.5 ** (step // 4)  # of 2 steps an epoch
        for leaf, array in zip(leaves, jax.tree.leaves(gradient), strict=True):
            leaf.grad = torch.tensor(array)
        oracle.step()
    ours = (Nesterov if nesterov else Momentum)(momentum_schedule=StepDecay(2, 0.5))
    assert_same(jax.tree.leaves(run(ours)[-1]), [leaf.detach().numpy() for leaf in leaves], rtol=1e-8, atol=1e-9)


@pytest.mark.usefixtures("float64")
def test_layers_that_begin_by_themselves_have_the_momentum_of_the_schedule() -> None:
    optimizer = Nesterov(momentum_schedule="cosine_decay")
    transformation = optimizer.transformation(STEP_SIZE, 10, 2, begun={"inner": 3})
    weights = jax.tree.map(jnp.asarray, WEIGHTS)
    state = transformation.init(weights)
    for gradient, expected in zip(GRADIENTS, run(optimizer), strict=True):
        steps, state = transformation.update(jax.tree.map(jnp.asarray, gradient), state, weights)
        weights = optax.apply_updates(weights, steps)
        assert_same(weights, expected, rtol=1e-12)


@pytest.mark.usefixtures("float64")
def test_the_first_step_uses_the_first_factor() -> None:
    half = ExponentialDecay(1, 0.5)
    assert_same(run(SGD(schedule=half)), expected(iter, factor=lambda step: 0.5**step), rtol=1e-6)


@pytest.mark.usefixtures("float64")
def test_a_schedule_without_length_spans_the_run() -> None:
    cosine = expected(iter, factor=lambda step: (1 + np.cos(np.pi * step / 10)) / 2)
    assert_same(run(SGD(schedule="cosine_decay")), cosine, rtol=1e-6)


def norm(tree: Any) -> float:
    return float(np.sqrt(sum((np.asarray(leaf) ** 2).sum() for leaf in jax.tree.leaves(tree))))


def clipped(optimizer: Optimizer, gradient: Any) -> Any:
    """What the rule sees of a gradient, by the step that plain descent takes."""
    after = run(optimizer, [gradient])[0]
    return jax.tree.map(lambda before, now: (before - now) / STEP_SIZE, WEIGHTS, after)


SMALL = jax.tree.map(lambda array: 0.01 * array, GRADIENTS[0])


@pytest.mark.usefixtures("float64")
def test_clip_value_bounds_each_element() -> None:
    limited = jax.tree.map(lambda array: array.clip(-0.5, 0.5), GRADIENTS[0])
    assert_same(clipped(SGD(clip_value=0.5), GRADIENTS[0]), limited, rtol=1e-9)


@pytest.mark.usefixtures("float64")
def test_clip_norm_shortens_the_whole_gradient() -> None:
    scale = 0.5 / norm(GRADIENTS[0])
    shorter = jax.tree.map(lambda array: array * scale, GRADIENTS[0])
    assert_same(clipped(SGD(clip_norm=0.5), GRADIENTS[0]), shorter, rtol=1e-9)


@pytest.mark.usefixtures("float64")
def test_clip_layer_norm_shortens_each_innermost_layer_by_itself() -> None:
    mixed = {**GRADIENTS[0], "inner": SMALL["inner"]}
    scale = 0.5 / norm(mixed["dense_0"])
    shorter = {**mixed, "dense_0": {name: array * scale for name, array in mixed["dense_0"].items()}}
    assert_same(clipped(SGD(clip_layer_norm=0.5), mixed), shorter, rtol=1e-9)
    swapped = {**SMALL, "inner": GRADIENTS[0]["inner"]}
    inner = clipped(SGD(clip_layer_norm=0.5), swapped)["inner"]
    assert norm(inner) == pytest.approx(0.5)


@pytest.mark.usefixtures("float64")
def test_clip_array_norm_shortens_each_array_by_itself() -> None:
    mixed = {**GRADIENTS[0], "inner": SMALL["inner"]}
    shorter = {**mixed, "dense_0": {name: 0.5 * array / norm(array) for name, array in mixed["dense_0"].items()}}
    assert_same(clipped(SGD(clip_array_norm=0.5), mixed), shorter, rtol=1e-9)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("gradient", [GRADIENTS[0], SMALL], ids=["long", "short"])
def test_normalized_gradients_of_layers_or_arrays_have_norm_1_but_those_of_0(gradient: Any) -> None:
    zero = {**gradient, "inner": jax.tree.map(np.zeros_like, gradient["inner"])}
    own = zero["dense_0"]
    by_layer = {**zero, "dense_0": {name: array / norm(own) for name, array in own.items()}}
    by_array = {**zero, "dense_0": {name: array / norm(array) for name, array in own.items()}}
    assert_same(clipped(SGD(normalize="layer"), zero), by_layer, rtol=1e-9)
    assert_same(clipped(SGD(normalize="array"), zero), by_array, rtol=1e-9)


@pytest.mark.usefixtures("float64")
def test_a_short_or_zero_gradient_is_left_alone() -> None:
    careful = SGD(clip_value=1.0, clip_array_norm=1.0, clip_layer_norm=1.0, clip_norm=1.0)
    zero = jax.tree.map(np.zeros_like, SMALL)
    assert_same(clipped(careful, SMALL), SMALL, rtol=1e-9, atol=1e-15)
    assert_same(clipped(careful, zero), zero, atol=0.0)


@pytest.mark.usefixtures("float64")
def test_clippings_apply_from_the_smallest_part_to_the_whole() -> None:
    gradient = {"a": {"w": np.array([30.0, 4.0])}, "b": {"w": np.array([0.0, 0.0])}}
    weights = jax.tree.map(np.zeros_like, gradient)
    optimizer = SGD(clip_value=3.0, clip_layer_norm=2.0, clip_norm=1.0)
    after = run(optimizer, [gradient], weights)[0]["a"]["w"]
    np.testing.assert_allclose(after, -STEP_SIZE * np.sqrt([0.5, 0.5]), rtol=1e-9)  # (3, 3) shortened to norm 1
    parts = {"a": {"v": np.array([30.0]), "w": np.array([0.0, 1.0])}, "b": {"w": np.array([5.0])}}
    optimizer = SGD(normalize="array", clip_value=0.8, clip_array_norm=0.6, clip_layer_norm=0.5)
    after = run(optimizer, [parts], jax.tree.map(np.zeros_like, parts))[0]
    lengths = {"a": {"v": [np.sqrt(0.125)], "w": [0.0, np.sqrt(0.125)]}, "b": {"w": [0.5]}}
    jax.tree.map(
        lambda moved, length: np.testing.assert_allclose(moved, -STEP_SIZE * length, rtol=1e-9),
        after,
        jax.tree.map(np.array, lengths, is_leaf=lambda value: isinstance(value, list)),
    )


@pytest.mark.usefixtures("float64")
def test_decay_is_not_clipped() -> None:
    zero = jax.tree.map(np.zeros_like, SMALL)
    after = run(SGD(weight_decay=2.0, clip_value=1e-3, clip_norm=1e-3), [zero])[0]
    assert_same(after, jax.tree.map(lambda array: array * (1 - 2 * STEP_SIZE), WEIGHTS), rtol=1e-9)


@pytest.mark.parametrize(
    "optimizer",
    [
        *(case[0] for case in TABLE.values()),
        LAMB(weight_decay=0.1),
        SGD(normalize="layer", clip_array_norm=2.0),
        Adam(0.8, schedule=CosineDecay(end=0.1), weight_decay=0.1, clip_value=1.0, clip_layer_norm=2.0, clip_norm=3.0),
    ],
    ids=lambda case: repr(case)[:12],
)
def test_json_round_trip(optimizer: Optimizer) -> None:
    assert Optimizer.from_json(optimizer.to_json()) == optimizer


def test_names_are_accepted_for_schedules() -> None:
    assert SGD(schedule="cosine_decay") == SGD(schedule=CosineDecay())
    assert Momentum(momentum_schedule="cosine_decay") == Momentum(momentum_schedule=CosineDecay())
    assert Optimizer.of("adam") == Adam() and Optimizer.of("adabelief") == AdaBelief()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(weight_decay=-0.1), r"weight_decay of SGD must be a number in \[0, inf\), received -0.1"),
        (lambda: Adam(beta1=1.0), r"beta1 of Adam must be a number in \[0, 1\), received 1.0"),
        (lambda: AMSGrad(beta2=-0.5), "beta2 of AMSGrad"),
        (lambda: Lion(beta2=1), "beta2 of Lion"),
        (lambda: AdaDelta(rho=1.5), "rho of AdaDelta"),
        (lambda: Momentum(1.0), "momentum of Momentum"),
        (lambda: RMSProp(decay=1.0), "decay of RMSProp"),
        (lambda: Adam(epsilon=0.0), r"epsilon of Adam must be a number in \(0, inf\)"),
        (lambda: AdaGrad(initial_accumulator=-1), "initial_accumulator of AdaGrad"),
        (lambda: SGD(clip_norm=0.0), "clip_norm of SGD"),
        (lambda: SGD(clip_layer_norm=-1), "clip_layer_norm of SGD"),
        (lambda: SGD(clip_array_norm=0), "clip_array_norm of SGD"),
        (lambda: SGD(normalize="row"), 'normalize of SGD must be "layer", "array" or None, received \'row\''),
        (lambda: RAdam(beta2=1.0), "beta2 of RAdam"),
        (lambda: AdaBelief(epsilon=0.0), "epsilon of AdaBelief"),
        (lambda: SGD(clip_value=float("nan")), "clip_value of SGD"),
        (lambda: Nesterov(momentum_schedule="up"), "Schedule is expected, received 'up'; choose one of"),
        (lambda: SGD(schedule="cosine"), "Schedule is expected, received 'cosine'; choose one of .*CosineDecay"),
        (lambda: SGD(schedule=StepDecay(1, unit="hour")), "unit of StepDecay"),
        (lambda: SGD().transformation(-0.1, 1, 1), "step size must be a positive number, received -0.1"),
        (lambda: SGD().transformation(float("nan"), 1, 1), "step size must be a positive number, received nan"),
    ],
)
def test_arguments_are_checked(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
