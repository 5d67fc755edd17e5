"""PyTorch's side of the table of ready networks: the same network, and its forward pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from contestants.ready_cases import Ready
from contestants.resnet_torch import module

from sparkdl import Graph, Network
from sparkdl.interchange import save_weights
from sparkdl.layers import Ragged


def peer(ready: Ready, network: Network | Graph, weights: Any, x: Any) -> Callable[[], Any]:
    """A call of the forward pass on the rows, which gives the same numbers as ours."""
    torch.set_num_threads(1)
    values = torch.from_numpy(np.array(x.values if isinstance(x, Ragged) else x))
    if values.ndim == 4:
        values = values.permute(0, 3, 1, 2)  # a view: channels last in memory
    if ready.peer:
        model = _of_hugging_face(ready, network, weights)
        values = values if values.is_floating_point() else values.long()
    else:
        assert isinstance(network, Network) and network.input_shape is not None
        model = module(network, weights, network.input_shape)
    model = model.eval().to(memory_format=torch.channels_last)

    def forward() -> Any:
        with torch.inference_mode():
            return _result(model(values))

    return forward


def _result(made: Any) -> torch.Tensor:
    """Scores of classes or words; a vector of each text."""
    if isinstance(made, torch.Tensor):
        return made
    named: dict[str, torch.Tensor | None] = dict(made)
    found = named.get("logits", named.get("pooler_output"))
    return named["last_hidden_state"][:, 0] if found is None else found  # type: ignore[index]


def _of_hugging_face(ready: Ready, network: Network | Graph, weights: Any) -> Any:
    """The model, from a file that we write."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    settings = dict(ready.peer or {})
    kinds = {"vit": "AutoModelForImageClassification", "gpt2": "GPT2LMHeadModel"}
    kind = getattr(transformers, kinds.get(settings["model_type"], "AutoModel"))
    config = transformers.AutoConfig.for_model(**settings)
    if settings["model_type"] == "vit":
        config.num_labels, config.layer_norm_eps = 1000, 1e-6
    with TemporaryDirectory(prefix="sparkdl-ready-") as folder:
        transformers.GenerationConfig().save_pretrained(folder)  # asked for of those that write texts
        save_weights(Path(folder) / "model.safetensors", weights, network, names="huggingface")
        return kind.from_pretrained(folder, config=config)
