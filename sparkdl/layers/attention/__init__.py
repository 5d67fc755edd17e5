"""Attention: what steps of rows take of one another, the positions that this needs, and blocks of it."""

from sparkdl.layers.attention.feed_forward import FeedForward as FeedForward
from sparkdl.layers.attention.learned_queries import LearnedSelfAttention as LearnedSelfAttention
from sparkdl.layers.attention.multi_head import MultiHeadAttention as MultiHeadAttention
from sparkdl.layers.attention.positional import LearnedPositions as LearnedPositions
from sparkdl.layers.attention.positional import SinusoidalPositions as SinusoidalPositions
from sparkdl.layers.attention.recurrent_attention import RecurrentAttention as RecurrentAttention
from sparkdl.layers.attention.tokens import ClassToken as ClassToken
from sparkdl.layers.attention.tokens import ConcatenateSteps as ConcatenateSteps
from sparkdl.layers.attention.tokens import FeatureTokens as FeatureTokens
from sparkdl.layers.attention.tokens import Segments as Segments
from sparkdl.layers.attention.transformer import TransformerDecoder as TransformerDecoder
from sparkdl.layers.attention.transformer import TransformerEncoder as TransformerEncoder
