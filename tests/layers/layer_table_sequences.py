"""Layers of sequences that test_layers.py proves, of rows of any length and of rows that all have as many steps."""

from __future__ import annotations

from layer_table import Row

from sparkdl.layers import (
    Add,
    AttentionPool,
    BatchNorm,
    Bidirectional,
    ClassToken,
    ConcatenateSteps,
    Conv,
    Dense,
    DepthwiseConv,
    EachStep,
    FeatureTokens,
    FeedForward,
    FirstStep,
    Flatten,
    GravesLstm,
    Gru,
    LastStep,
    LearnedPositions,
    LearnedSelfAttention,
    Lstm,
    MaskedEmbedding,
    Masking,
    MultiHeadAttention,
    Multiply,
    RecurrentAttention,
    RepeatStep,
    ReverseSteps,
    SeparableConv,
    SimpleRnn,
    SinusoidalPositions,
    Tanh,
    TemporalConvNet,
    TiedDense,
    TimeMax,
    TimeMean,
    TimeSum,
    TransformerDecoder,
    TransformerEncoder,
)

RECURRENT = [
    Row(SimpleRnn(3), (4, 2), refused=(4,)),
    Row(SimpleRnn(2), (None, 2)),
    Row(SimpleRnn(2, "softsign"), (3, 2)),
    Row(SimpleRnn(2, activation="relu", backwards=True, bias=False), (3, 2), refused=()),
    Row(Lstm(3), (4, 2), refused=(2, 4, 2)),
    Row(Lstm(2), (None, 3)),
    Row(Lstm(2, backwards=True, bias=False, dropout=0.4, recurrent_dropout=0.3), (3, 3), refused=(3,)),
    Row(GravesLstm(3, l2=0.1), (4, 2), refused=(4,)),
    Row(GravesLstm(2, backwards=True, recurrent_dropout=0.4), (3, 2), refused=(4,)),
    Row(Lstm(2, activation="softsign", recurrent_activation="elu"), (3, 2)),
    Row(GravesLstm(2, activation="sigmoid", recurrent_activation="tanh"), (None, 2)),
    Row(Gru(3), (4, 2), refused=(4,)),
    Row(Gru(2, activation="elu", recurrent_activation="softsign"), (3, 2)),
    Row(Gru(2, reset_after=False, activation="linear", recurrent_activation="sigmoid"), (None, 2)),
    Row(Gru(2, backwards=True), (None, 3)),
    Row(Gru(2, reset_after=False, recurrent_dropout=0.4), (3, 2), refused=(2, 3, 2)),
    Row(Gru(3, backwards=True, bias=False, dropout=0.3, recurrent_dropout=0.4, constraint="unit_norm"), (2, 3)),
]

RECURRENT_ATTENTION = [
    Row(RecurrentAttention(4, 2), (None, 3), refused=(None,)),
    Row(RecurrentAttention(3, 2, 2, bias=False, l1=0.1, constraint="unit_norm"), (3, 2), refused=(3, 2, 2)),
    Row(RecurrentAttention(2, activation="relu"), (4, 3), refused=()),
    Row(RecurrentAttention(3, project=False), (None, 3), refused=(None, 2)),
]

BOTH_WAYS = [
    Row(Bidirectional(Lstm(2)), (3, 2)),
    Row(Bidirectional(Gru(2, dropout=0.3), Add()), (3, 2)),
    Row(Bidirectional(SimpleRnn(2), merge=Multiply()), (2, 3)),
    Row(Bidirectional(Lstm(2)), (None, 2)),
]

OVER_TIME = [
    Row(FirstStep(), (None, 3), refused=(4,)),
    Row(FirstStep(), (4, 2, 3)),
    Row(LastStep(), (None, 3), refused=(4,)),
    Row(LastStep(), (4, 2, 3)),
    Row(TimeMean(), (None, 3), refused=(None,)),
    Row(TimeMean(), (4, 3)),
    Row(TimeSum(), (None, 3), refused=(None,)),
    Row(TimeSum(), (4, 2, 3)),
    Row(TimeMax(), (None, 3), refused=()),
    Row(TimeMax(), (4, 2)),
    Row(RepeatStep(), ((3,), (None, 2)), refused=((None, 3), (None, 2))),
    Row(RepeatStep(), ((2, 2), (3, 1)), refused=((3,), ())),
    Row(ReverseSteps(), (None, 3), refused=()),
    Row(ReverseSteps(), (4, 2, 3)),
    Row(ReverseSteps(), (None,)),
    Row(Masking(), (None, 3), refused=()),
    Row(Masking(-1.5), (4, 2, 3)),
    Row(MaskedEmbedding(5, 3), (4,), refused=(4, 2)),
    Row(MaskedEmbedding(5, 2, unknown=True, unknown_rate=0.4, l2=0.1), (None,), refused=()),
    Row(AttentionPool(4), (None, 3), refused=(None,)),
    Row(AttentionPool(bias=False, l2=0.1), (4, 3), refused=(4, 3, 2)),
]

CONVOLUTIONS_OVER_TIME = [
    Row(Conv(3, 3, padding="causal", dilation=2), (None, 2), refused=(None, 3, 2)),
    Row(Conv(3, 4, padding="same"), (None, 2), refused=(None,)),
    Row(Conv(2, 3, strides=2, padding="causal", dilation=2), (7, 3), refused=(7, 3, 3)),
    Row(DepthwiseConv(3, padding="causal", dilation=2, multiplier=2), (None, 2), refused=(None, 3, 2)),
    Row(SeparableConv(3, 2, padding="causal"), (None, 2)),
]

BLOCKS_OVER_TIME = [
    Row(TemporalConvNet([3], 2, activation=Tanh()), (None, 2), refused=(4, 2, 2)),
    Row(TemporalConvNet([2, 3], dropout=0.4, activation=Tanh(), kernel_initializer="glorot_uniform"), (5, 2)),
]

BY_STEP = [
    Row(EachStep([Conv(2, (2, 2)), Flatten(), Dense(3)]), (2, 3, 3, 1), refused=()),
    Row(EachStep(BatchNorm()), (4, 3)),
]

ATTENTION = [
    Row(MultiHeadAttention(4, 2, 2, causal=True, dropout=0.3, rotary=100.0), (3, 3), refused=((3, 4), (3, 4))),
    Row(MultiHeadAttention(2), (None, 4), refused=(None, 3)),
    Row(MultiHeadAttention(2, 3, dropout=0.3), ((None, 2), (None, 3)), refused=((4, 2), (3,))),
    Row(MultiHeadAttention(2, 2, 1, bias=False, l1=0.1, constraint="unit_norm"), ((3, 2), (5, 3)), refused=(4,)),
    Row(MultiHeadAttention(1, rotary=10.0), (None, 2), refused=(3, 3)),
]

LEARNED_QUERIES = [
    Row(LearnedSelfAttention(3, heads=2), (None, 4), refused=(None, 3)),
    Row(LearnedSelfAttention(2, 3, 2, 2, bias=False, l1=0.1, constraint="unit_norm"), (4, 2), refused=(4, 2, 2)),
    Row(LearnedSelfAttention(2, 4, 2, dropout=0.3), (None, 3), refused=(None,)),
    Row(LearnedSelfAttention(3, project=False, dropout=0.3, l2=0.1), (None, 2), refused=(2,)),
    Row(LearnedSelfAttention(1, 3, project=False), (4, 3), refused=(4, 2)),
]

POSITIONS = [
    Row(LearnedPositions(5), (4, 2), refused=(6, 2)),
    Row(LearnedPositions(7), (None, 3), refused=(None,)),
    Row(SinusoidalPositions(), (3, 5), refused=(3, 5, 2)),
    Row(SinusoidalPositions(20.0), (None, 4)),
]

BLOCKS = [
    Row(FeedForward(3), (4,), refused=()),
    Row(TiedDense(5, "words"), (3,), refused=()),
    Row(TiedDense(4, to="words"), (2, 3)),
    Row(FeedForward(4, "silu", 0.3, gated=True), (2, 3)),
    Row(FeedForward(2, "relu", bias=False, l2=0.1, constraint="max_norm"), (3,), refused=()),
    Row(TransformerEncoder(2, 3), (3, 4)),
    Row(TransformerEncoder(1, 2, 0.2, "silu", True, True, gated=True, rotary=9.0), (2, 2)),
    Row(TransformerDecoder(1, 3), ((3, 2), (2, 3))),
]

TOKENS = [
    Row(ClassToken(), (2, 3), refused=(None, 3)),
    Row(FeatureTokens(3), (2,), refused=(2, 2)),
    Row(ConcatenateSteps(), ((2, 3), (3,), (1, 3)), refused=((2, 3), (2,))),
]
