"""Ready transformers: the published numbers of weights, values of PyTorch's parts put together, and that they learn."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_peers import block_weights, drawn, padding, ragged

from sparkdl import Graph, Network, models, training
from sparkdl.layers import Embedding, EmbeddingBag, HashedEmbedding, Normalization
from sparkdl.weights import count_weights

pytestmark = pytest.mark.usefixtures("unoptimized")

# Of Hugging Face's checkpoints "bert-base-uncased", "distilbert-base-uncased", "all-MiniLM-L6-v2" and "gpt2", without
# heads; the number that Dosovitskiy et al. 2021 and torchvision have for ViT-B/16, and timm's for ViT-S/16 and Ti/16.
PUBLISHED = {
    "bert": (models.bert(), 109_482_240),
    "bert, cased": (models.bert(vocabulary=28_996), 108_310_272),
    "bert, not pooled": (models.bert(pooled=False), 108_891_648),
    "distilbert": (models.distilbert(), 66_362_880),
    "minilm": (models.minilm(), 22_713_216),
    "gpt2": (models.gpt2(), 124_439_808),
    "vit_s16": (models.vit_s16(), 22_050_664),
    "vit_b16": (models.vit_b16(), 86_567_656),
    "vit, tiny": (models.vit((224, 224, 3), 1000, size=192, heads=3), 5_717_416),
}


@pytest.mark.parametrize(("network", "count"), PUBLISHED.values(), ids=PUBLISHED)
def test_weights_are_as_many_as_published(network: Network | Graph, count: int) -> None:
    assert count_weights(network.abstract_weights()) == count


def test_those_of_a_table_are_as_many_as_the_papers_layers_have() -> None:
    network = models.ft_transformer({"city": 7, "kind": Embedding(5, 3)}, numbers=4, outputs=2)
    size, hidden = 192, 256
    tokens = 4 * 2 * size + (7 + 1) * size + 5 * size + size
    block = 4 * (size * size + size) + 2 * (size * hidden + hidden) + hidden * size + size + 2 * size
    norms = 2 * 2 * size  # of the attention in the second and third block
    assert count_weights(network.abstract_weights()) == tokens + 3 * block + norms + 2 * size + size * 2 + 2


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        (models.transformer_classifier(90, 3), (3,)),
        (models.transformer_classifier(HashedEmbedding(90, 12), 3, heads=3, feed_forward=5), (3,)),
        (models.bert(4, 50, 8, 1, 2, length=20), (4,)),
        (models.bert(None, 50, 8, 1, 2, length=20, separator=None), (8,)),
        (models.distilbert(5), (5,)),
        (models.minilm(), (384,)),
        (models.gpt2(50, 8, 1, 2, 20), (None, 50)),
        (models.gpt2(50, 8, 1, 2, 20, steps=7), (7, 50)),
        (models.vit((32, 16, 1), 5, 8, 12, 1, 3, dropout=0.1), (5,)),
        (models.vit_s16((32, 32, 3), 2), (2,)),
        (models.ft_transformer({"city": 9}, 0, 3, blocks=1), (3,)),
        (models.ft_transformer({}, Normalization((0.0, 1), (1.0, 2)), 1, 2, 16), (1,)),
        (models.ft_transformer({"seen": EmbeddingBag(9, 2), "kind": 3}, 2, 2, blocks=7), (2,)),
    ],
)
def test_shapes(network: Network | Graph, shape: tuple[int, ...]) -> None:
    assert network.output_shape() == shape


# Values


WORDS, SIZE, HEADS, BLOCKS, LENGTHS = 20, 8, 2, 2, (6, 1, 4)
IDS = np.random.default_rng(2).integers(3, WORDS, (3, 6)).astype("int32")
IDS[0, [2, 5]] = IDS[2, 1] = 2  # which separates


def of_torch(network: Network | Graph, given: dict[str, Any]) -> Any:
    """Weights of the network: those given, and random ones for what is missing."""
    random = np.random.default_rng(7)
    weights = jax.tree.map(lambda array: random.normal(size=array.shape), network.abstract_weights())
    return weights | given


def test_bert_is_what_its_parts_are_in_torch(float64: None) -> None:
    torch = pytest.importorskip("torch")
    blocks = [
        drawn(torch.nn.TransformerEncoderLayer(SIZE, HEADS, 4 * SIZE, 0, "gelu", 1e-12, True), seed)
        for seed in range(BLOCKS)
    ]
    network = models.bert(3, WORDS, SIZE, BLOCKS, HEADS, length=9, separator=2)
    weights = of_torch(network, {f"block_{index}": block_weights(block) for index, block in enumerate(blocks)})
    words, types = weights["words"]["table"], weights["types"]["table"]
    positions, norm = weights["embedded"]["positions"]["table"], weights["embedded"]["norm"]
    segments = [[0, 0, 0, 1, 1, 1], [0] * 6, [0, 0, 1, 1, 1, 1]]
    x = torch.from_numpy(words[IDS] + types[np.array(segments)] + positions[None, :6])
    x = torch.nn.functional.layer_norm(x, (SIZE,), *(torch.from_numpy(norm[name]) for name in ("scale", "bias")), 1e-12)
    for block in blocks:
        x = block(x, src_key_padding_mask=padding(IDS, LENGTHS))
    dense, head = weights["pooled"]["dense"], weights["outputs"]["dense"]
    pooled = np.tanh(x[:, 0].detach().numpy() @ dense["kernel"] + dense["bias"])
    expected = pooled @ head["kernel"] + head["bias"]
    found = jax.jit(network.forward)(weights, ragged(IDS, LENGTHS))
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_gpt2_is_what_its_parts_are_in_torch(float64: None) -> None:
    torch = pytest.importorskip("torch")
    active = torch.nn.GELU(approximate="tanh")
    blocks = [
        drawn(torch.nn.TransformerEncoderLayer(SIZE, HEADS, 4 * SIZE, 0, active, 1e-5, True, True), seed)
        for seed in range(BLOCKS)
    ]
    network = models.gpt2(WORDS, SIZE, BLOCKS, HEADS, 9)
    weights = of_torch(network, {f"block_{index}": block_weights(block) for index, block in enumerate(blocks)})
    table = weights["words"]["table"]
    x = torch.from_numpy(table[IDS] + weights["positions"]["table"][None, :6])
    later = torch.ones(6, 6, dtype=torch.bool).triu(1)
    for block in blocks:
        x = block(x, src_mask=later)
    norm = (torch.from_numpy(weights["norm"][name]) for name in ("scale", "bias"))
    expected = torch.nn.functional.layer_norm(x, (SIZE,), *norm).detach().numpy() @ table.T
    found = jax.jit(network.forward)(weights, ragged(IDS, LENGTHS)).values
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(found[row, :length], expected[row, :length], atol=1e-10)


def test_a_vision_transformer_sees_patches_from_left_to_right(float64: None) -> None:
    """Without blocks: patches, the class before them, positions and the norm, by NumPy."""
    network = models.vit((4, 6, 2), 3, patch=2, size=5, blocks=1, heads=1).up_to("positions")
    weights = of_torch(network, {})
    x = np.random.default_rng(3).normal(size=(2, 4, 6, 2))
    patches = [x[:, row : row + 2, column : column + 2] for row in (0, 2) for column in (0, 2, 4)]
    kernel, bias = weights["patches"]["kernel"], weights["patches"]["bias"]
    steps = [np.einsum("nhwc,hwcd->nd", patch, kernel) + bias for patch in patches]
    whole = np.stack([np.broadcast_to(weights["class"]["token"], (2, 5)), *steps], axis=1)
    found = jax.jit(network.forward)(weights, jnp.asarray(x))
    np.testing.assert_allclose(found, whole + weights["positions"]["table"], atol=1e-12)


# Learning


def test_a_classifier_learns_whether_two_words_meet() -> None:
    """Which no bag of words can: the words are there in every row, and their order decides."""
    random = np.random.default_rng(5)
    rows, labels = [], []
    for _ in range(300):
        row = random.integers(2, 12, random.integers(4, 9))
        first, second = np.sort(random.choice(len(row), 2, replace=False))
        label = int(random.integers(2))
        row[first], row[second] = (0, 1) if label else (1, 0)
        rows.append(row.astype("int32"))
        labels.append(label)
    network = models.transformer_classifier(12, 2, size=16, blocks=1, heads=2, dropout=0.0)
    given: dict[str, Any] = {"optimizer": "adam", "step_size": 0.01, "epochs": 40, "batch_size": 50}
    result = training.fit(network, (rows, np.array(labels)), **given)
    assert (result.history[-1].metric or 0) > 0.95


def test_gpt2_learns_what_follows() -> None:
    """The word before the last one: no table of pairs of neighbours can tell. The first tells nothing of the second."""
    random = np.random.default_rng(5)
    lengths = random.integers(3, 9, 300)
    rows = [np.tile(random.integers(0, 6, 2), 5)[: length + 1].astype("int32") for length in lengths]
    network = models.gpt2(6, 16, 2, 2, 8, dropout=0.0)
    given: dict[str, Any] = {"optimizer": "adam", "step_size": 0.01, "epochs": 30, "batch_size": 50}
    result = training.fit(network, ([row[:-1] for row in rows], [row[1:] for row in rows]), **given)
    assert (result.history[-1].metric or 0) > 1 - 1 / lengths.mean() - 0.02


def test_features_meet_in_attention() -> None:
    random = np.random.default_rng(6)
    city, numbers = random.integers(0, 7, 600).astype("int32"), random.normal(size=(600, 3)).astype("float32")
    labels = ((np.isin(city, [1, 2, 5]) * 2 - 1) * numbers[:, 0] > 0) * 1.0
    network = models.ft_transformer({"city": 7}, 3, 2, blocks=2, size=16, heads=2, attention_dropout=0.0, dropout=0.0)
    given: dict[str, Any] = {"optimizer": "adam", "step_size": 0.01, "epochs": 30, "batch_size": 60}
    result = training.fit(network, ({"city": city, "numbers": numbers}, labels), **given)
    assert (result.history[-1].metric or 0) > 0.95


def test_what_makes_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match="height and a width that are multiples of patch=16, received"):
        models.vit((30, 32, 3), 2)
    with pytest.raises(ValueError, match="blocks of ft_transformer must be a positive integer, received 0"):
        models.ft_transformer({"city": 7}, blocks=0)
    with pytest.raises(ValueError, match="at least one category or number"):
        models.ft_transformer({})
