"""Hugging Face's transformers, as PyTorch's exporters write them, become networks that compute the same."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from sparkdl.interchange import load_onnx
from sparkdl.layers import Ragged

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("onnxscript")
from torch import nn  # noqa: E402

pytestmark = pytest.mark.usefixtures("unoptimized")

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
WORDS = {**SMALL, "vocab_size": 50, "max_position_embeddings": 40}
OTHERS = {"vocab_size": 50, "max_position_embeddings": 40, "n_positions": 40}
PICTURES = {**SMALL, "image_size": 16, "patch_size": 8}

ENCODERS: dict[str, Callable[[], Any]] = {
    "bert": lambda: transformers.BertModel(transformers.BertConfig(**WORDS)),
    "roberta": lambda: transformers.RobertaModel(transformers.RobertaConfig(**WORDS)),
    "electra": lambda: transformers.ElectraModel(transformers.ElectraConfig(**WORDS, embedding_size=8)),
    "albert": lambda: transformers.AlbertModel(transformers.AlbertConfig(**WORDS, embedding_size=8)),
    "distilbert": lambda: transformers.DistilBertModel(
        transformers.DistilBertConfig(**OTHERS, dim=16, n_layers=2, n_heads=2, hidden_dim=24)
    ),
    "gpt2": lambda: transformers.GPT2Model(transformers.GPT2Config(**OTHERS, n_embd=16, n_layer=2, n_head=2)),
}
OF_IMAGES: dict[str, Callable[[], Any]] = {
    "vit": lambda: transformers.ViTModel(transformers.ViTConfig(**PICTURES)),
    "deit": lambda: transformers.DeiTModel(transformers.DeiTConfig(**PICTURES)),
    "clip": lambda: transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**PICTURES)),
    "resnet": lambda: transformers.ResNetModel(
        transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic")
    ),
    "regnet": lambda: transformers.RegNetModel(
        transformers.RegNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], groups_width=4)
    ),
    "convnext": lambda: transformers.ConvNextModel(
        transformers.ConvNextConfig(hidden_sizes=[4, 8], depths=[1, 1], num_stages=2)
    ),
}
LENGTHS = [7, 4]


class Hidden(nn.Module):
    """The last hidden states."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any) -> Any:
        return self.model(x).last_hidden_state


class Masked(Hidden):
    """Those of words of which a mask tells which count."""

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class Sentence(Hidden):
    """One vector of length 1 a text, of the mean of its words, as sentence-transformers have it."""

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        told = {"attention_mask": attention_mask, "token_type_ids": token_type_ids}
        hidden = self.model(input_ids=input_ids, **told).last_hidden_state
        mask = attention_mask.unsqueeze(-1).expand(hidden.size()).float()
        mean = (hidden * mask).sum(1) / torch.clamp(mask.sum(1), min=1e-9)
        return nn.functional.normalize(mean, p=2, dim=1)


def exported(model: nn.Module, inputs: dict[str, Any], path: Path, way: str) -> Path:
    """The file by one of the exporters, sizes of rows and words open; or as it is written if nothing more is said."""
    axes = {0: "batch", 1: "time"} if len(inputs) > 1 else {0: "batch"}
    told: dict[str, Any] = {}
    if way == "traced":
        told = {"dynamo": False, "dynamic_axes": {name: axes for name in inputs}}
    elif way == "programs":
        sizes = {axis: torch.export.Dim(name, max=32) for axis, name in axes.items()}
        told = {"dynamo": True, "dynamic_shapes": tuple(sizes for _ in inputs)}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(model, tuple(inputs.values()), path, input_names=list(inputs), **told)
    return path


def words() -> dict[str, Any]:
    torch.manual_seed(0)
    mask = torch.tensor([[int(step < length) for step in range(max(LENGTHS))] for length in LENGTHS])
    return {"input_ids": torch.where(mask == 1, torch.randint(3, 50, mask.shape), 1), "attention_mask": mask}


def ragged(array: Any) -> Ragged:
    return Ragged(jnp.asarray(array.numpy(), "int32"), jnp.asarray(LENGTHS, "int32"))


@pytest.mark.parametrize("way", ["traced", "programs", "as it is"])
@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_of_words(name: str, way: str, tmp_path: Path) -> None:
    inputs = words()
    model = Masked(ENCODERS[name]()).eval()
    network, weights = load_onnx(exported(model, inputs, tmp_path / "a.onnx", way))
    assert list(network.input_shapes.values()) == [(None,)]
    assert {type(leaf.layer).__name__ for leaf in network.leaves()} >= {"Embedding", "LearnedPositions", "LayerNorm"}
    y = network.forward(weights, ragged(inputs["input_ids"]))
    with torch.no_grad():
        expected, valid = model(**inputs).numpy(), inputs["attention_mask"].numpy().astype(bool)
    np.testing.assert_allclose(np.asarray(y.values)[valid], expected[valid], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", ["traced", "programs"])
def test_vectors_of_sentences(way: str, tmp_path: Path) -> None:
    inputs = words()
    inputs["token_type_ids"] = torch.ones_like(inputs["input_ids"])
    model = Sentence(ENCODERS["bert"]()).eval()
    path = exported(model, inputs, tmp_path / "a.onnx", way)
    with pytest.raises(ValueError, match="rows of the same lengths.* can be given as constants={NAME: NUMBER}"):
        load_onnx(path)
    network, weights = load_onnx(path, constants={"token_type_ids": 1})
    y = network.forward(weights, ragged(inputs["input_ids"]))
    with torch.no_grad():
        np.testing.assert_allclose(y, model(**inputs).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", ["traced", "programs", "as it is"])
@pytest.mark.parametrize("name", OF_IMAGES)
def test_networks_of_images(name: str, way: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Hidden(OF_IMAGES[name]()).eval(), torch.randn(2, 3, 16, 16)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            nn.init.uniform_(buffer, 0.5, 1.5)
    network, weights = load_onnx(exported(model, {"x": x}, tmp_path / "a.onnx", way))
    y = network.forward(weights, jnp.asarray(np.moveaxis(x.numpy(), 1, -1)))
    with torch.no_grad():
        expected = model(x).numpy()
    expected = np.moveaxis(expected, 1, -1) if expected.ndim > 3 else expected
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
