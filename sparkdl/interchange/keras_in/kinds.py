"""Which function makes layers of ours of a class of Keras's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparkdl.interchange.keras_in import (
    keras_activations,
    keras_applications,
    keras_dense,
    keras_images,
    keras_merges,
    keras_norms,
    keras_preparation,
    keras_shapes,
    keras_steps,
)
from sparkdl.interchange.keras_in.layer_config import LayerConfig
from sparkdl.interchange.keras_in.part import Part

Conversion = Callable[[LayerConfig, Any], Part]  # of a layer, given the shapes of the rows that it reads


def _of_ranks(conversion: Conversion, name: str, *ranks: int) -> dict[str, Conversion]:
    """By class, as Conv1D, Conv2D and Conv3D; `name` has a hash for the number."""
    return {name.replace("#", str(rank)): conversion for rank in ranks or (1, 2, 3)}


def _nothing(config: LayerConfig, shapes: Any) -> Part:
    """A layer that does nothing but in training."""
    config.get("l1"), config.get("l2")
    return Part(())


KINDS: dict[str, Conversion] = {
    **keras_activations.LAYERS,
    **dict.fromkeys(keras_merges.BY_KIND, keras_merges.merged),
    **dict.fromkeys(keras_steps.LAYERS, keras_steps.recurrent),
    **_of_ranks(keras_images.average_pool, "AveragePooling#D"),
    **_of_ranks(keras_images.convolution, "Conv#D"),
    **_of_ranks(keras_images.depthwise, "DepthwiseConv#D", 1, 2),
    **_of_ranks(keras_images.global_average, "GlobalAveragePooling#D"),
    **_of_ranks(keras_images.global_max, "GlobalMaxPooling#D"),
    **_of_ranks(keras_images.max_pool, "MaxPooling#D"),
    **_of_ranks(keras_images.separable, "SeparableConv#D", 1, 2),
    **_of_ranks(keras_images.transposed, "Conv#DTranspose"),
    **_of_ranks(keras_norms.spatial_dropout, "SpatialDropout#D"),
    **_of_ranks(keras_shapes.cropping, "Cropping#D"),
    **_of_ranks(keras_shapes.up_sampling, "UpSampling#D"),
    **_of_ranks(keras_shapes.zero_padding, "ZeroPadding#D"),
    "Activation": keras_activations.activation_layer,
    "ActivityRegularization": _nothing,
    "AlphaDropout": keras_norms.alpha_dropout,
    "BatchNormalization": keras_norms.batch_normalization,
    "Bidirectional": keras_steps.bidirectional,
    "CenterCrop": keras_preparation.center_crop,
    "Concatenate": keras_merges.concatenated,
    "CustomScaleLayer": keras_applications.scaled_sum,
    "Dense": keras_dense.dense,
    "Discretization": keras_preparation.discretization,
    "Dot": keras_merges.dot,
    "Dropout": keras_norms.dropout,
    "Embedding": keras_dense.embedding,
    "Flatten": keras_shapes.flatten,
    "GaussianDropout": keras_norms.gaussian_dropout,
    "GaussianNoise": keras_norms.gaussian_noise,
    "GroupNormalization": keras_norms.group_normalization,
    "GroupedQueryAttention": keras_steps.grouped_attention,
    "Identity": _nothing,
    "LayerNormalization": keras_norms.layer_normalization,
    "LayerScale": keras_applications.layer_scale,
    "Masking": keras_steps.masking,
    "MultiHeadAttention": keras_steps.attention,
    "Normalization": keras_dense.normalization,
    "PReLU": keras_activations.p_relu,
    "Permute": keras_shapes.permute,
    "RMSNormalization": keras_norms.rms_normalization,
    "RandomBrightness": keras_preparation.random_brightness,
    "RandomContrast": keras_preparation.random_contrast,
    "RandomFlip": keras_preparation.random_flip,
    "RandomInvert": keras_preparation.random_invert,
    "RandomRotation": keras_preparation.random_rotation,
    "RandomTranslation": keras_preparation.random_translation,
    "RandomZoom": keras_preparation.random_zoom,
    "RepeatVector": keras_shapes.repeat_vector,
    "Rescaling": keras_dense.rescaling,
    "Reshape": keras_shapes.reshape,
    "Resizing": keras_preparation.resizing,
    "StochasticDepth": keras_applications.stochastic_depth,
    "UnitNormalization": keras_norms.unit_normalization,
}

# Those that leave out the steps that a mask marks, or take every step by itself, and hand the mask on, as Keras 3 does.
HEED_MASKS = frozenset(
    (
        *keras_merges.BY_KIND,
        *keras_steps.LAYERS,
        *("Activation", "ActivityRegularization", "AlphaDropout", "BatchNormalization", "Bidirectional"),
        *("Concatenate", "Dense", "Dropout", "ELU", "Embedding", "GaussianDropout", "GaussianNoise"),
        *("GlobalAveragePooling1D", "GroupedQueryAttention", "Identity", "LayerNormalization", "LeakyReLU", "Masking"),
        *("MultiHeadAttention", "Normalization", "PReLU", "ReLU", "Rescaling", "SpatialDropout1D", "TimeDistributed"),
        *("UnitNormalization",),
    )
)
