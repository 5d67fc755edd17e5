"""Names of Hugging Face's files (`transformers`), by ready network."""

from __future__ import annotations

import re
from dataclasses import replace

from sparkdl.base_network import BaseNetwork
from sparkdl.interchange.links import Link, Table, embedding, encoder_block, linear, norm
from sparkdl.interchange.torch_names import COUNTERS, links, of_resnet, vision
from sparkdl.layers import BatchNorm
from sparkdl.weights import named_arrays

BERT = {
    "query": "attention.self.query.", "key": "attention.self.key.", "value": "attention.self.value.",
    "output": "attention.output.dense", "inner": "intermediate.dense", "outer": "output.dense",
    "attention_norm": "attention.output.LayerNorm", "feed_forward_norm": "output.LayerNorm",
}  # fmt: skip
DISTILBERT = {
    "query": "attention.q_lin.", "key": "attention.k_lin.", "value": "attention.v_lin.",
    "output": "attention.out_lin", "inner": "ffn.lin1", "outer": "ffn.lin2",
    "attention_norm": "sa_layer_norm", "feed_forward_norm": "output_layer_norm",
}  # fmt: skip
GPT2 = {
    "qkv": "attn.c_attn.", "output": "attn.c_proj", "inner": "mlp.c_fc", "outer": "mlp.c_proj",
    "attention_norm": "ln_1", "feed_forward_norm": "ln_2",
}  # fmt: skip
VIT = {
    "query": "attention.attention.query.", "key": "attention.attention.key.", "value": "attention.attention.value.",
    "output": "attention.output.dense", "inner": "intermediate.dense", "outer": "output.dense",
    "attention_norm": "layernorm_before", "feed_forward_norm": "layernorm_after",
}  # fmt: skip


def hugging_face(network: BaseNetwork) -> Table | None:
    """Hugging Face's, of BERT, MiniLM, DistilBERT, GPT-2, vision transformers and ResNets; None of others."""
    for table in (bert, distilbert, gpt2, vit, resnet):
        if found := table(network):
            return found
    return None


def bert(network: BaseNetwork) -> Table | None:
    """Of `models.bert` with types."""
    arrays = _arrays(network)
    if not {"words/table", "types/table", "embedded/positions/table"} <= arrays:
        return None
    found = [
        *embedding("words", "bert.embeddings.word_embeddings"),
        *embedding("types", "bert.embeddings.token_type_embeddings"),
        *embedding("embedded/positions", "bert.embeddings.position_embeddings"),
        *norm("embedded/norm", "bert.embeddings.LayerNorm"),
    ]
    for index in range(_blocks(arrays)):
        found += encoder_block(f"block_{index}", f"bert.encoder.layer.{index}.", BERT)
    if "pooled/dense/kernel" in arrays:
        found += linear("pooled/dense", "bert.pooler.dense")
    head = "outputs/dense/kernel" in arrays
    found += linear("outputs/dense", "classifier") if head else ()
    besides = r"bert\.embeddings\.position_ids|bert\.pooler\..*|(cls|classifier|qa_outputs)\..*"  # what others end in
    return Table(found, "outputs/dense" if head else "", "bert.", besides)


def distilbert(network: BaseNetwork) -> Table | None:
    """Of `models.distilbert`."""
    arrays = _arrays(network)
    if not {"words/table", "embedded/positions/table"} <= arrays:
        return None
    found = [
        *embedding("words", "distilbert.embeddings.word_embeddings"),
        *embedding("embedded/positions", "distilbert.embeddings.position_embeddings"),
        *norm("embedded/norm", "distilbert.embeddings.LayerNorm"),
    ]
    for index in range(_blocks(arrays)):
        found += encoder_block(f"block_{index}", f"distilbert.transformer.layer.{index}.", DISTILBERT)
    head = "outputs/classifier/kernel" in arrays
    if head:
        found += [*linear("outputs/pre_classifier", "pre_classifier"), *linear("outputs/classifier", "classifier")]
    besides = r"distilbert\.embeddings\.position_ids|vocab_.*|((pre_)?classifier|qa_outputs)\..*"
    return Table(found, "outputs" if head else "", "distilbert.", besides)


def gpt2(network: BaseNetwork) -> Table | None:
    """Of `models.gpt2`, whose table of words is its last layer, too."""
    arrays = _arrays(network)
    if not {"words/table", "positions/table", "block_0/attention/query/kernel", "norm/scale"} <= arrays:
        return None
    found = [*embedding("words", "transformer.wte"), *embedding("positions", "transformer.wpe")]
    for index in range(_blocks(arrays)):
        found += encoder_block(f"block_{index}", f"transformer.h.{index}.", GPT2, plain=True)
    head, masks = "lm_head.weight", r"transformer\.h\.\d+\.attn\.(masked_)?bias"
    besides = rf"{re.escape(head)}|{masks}|(score|classifier|multiple_choice_head)\..*"
    found += norm("norm", "transformer.ln_f")
    return Table(found, prefix="transformer.", besides=besides, again={head: "transformer.wte.weight"})


def vit(network: BaseNetwork) -> Table | None:
    """Of `models.vit`."""
    names = {
        "patches": "vit.embeddings.patch_embeddings.projection",
        "class": "vit.embeddings.cls_token",
        "positions": "vit.embeddings.position_embeddings",
        "block": "vit.encoder.layer.",
        "norm": "vit.layernorm",
        "head": "classifier",
    }
    table = vision(network, VIT, names)
    return table and replace(table, prefix="vit.", besides=r"vit\.pooler\..*|vit\.embeddings\.mask_token|decoder\..*")


def resnet(network: BaseNetwork) -> Table | None:
    """Of `models.resnet`."""
    leaves = of_resnet(network)
    if leaves is None:
        return None

    def theirs(path: str, kind: str) -> str:
        *block, layer = path.split("/")
        if not block:
            return f"resnet.embedder.embedder.{kind}"
        stage, index = re.findall(r"\d+", block[0])
        stem = f"resnet.encoder.stages.{int(stage) - 1}.layers.{index}."
        if block[1] == "shortcut":
            return f"{stem}shortcut.{kind}"
        return f"{stem}layer.{int(layer[-1]) - 1}.{kind}"

    found: list[Link] = []
    for leaf in leaves[:-1]:
        kind = "normalization" if isinstance(leaf.layer, BatchNorm) else "convolution"
        found += links(leaf, theirs(leaf.path, kind))
    return Table([*found, *linear("fc", "classifier.1")], "fc", "resnet.", COUNTERS)


def _arrays(network: BaseNetwork) -> set[str]:
    return {path for path, _ in named_arrays(network.abstract_weights())}


def _blocks(arrays: set[str]) -> int:
    return len({path.partition("/")[0] for path in arrays if path.startswith("block_")})
