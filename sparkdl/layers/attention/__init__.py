"""Attention: what steps of rows take of one another, the positions that this needs, and blocks of it."""

from sparkdl.layers.attention.multi_head import MultiHeadAttention as MultiHeadAttention
