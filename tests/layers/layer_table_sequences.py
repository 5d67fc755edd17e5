"""Layers over the steps of a row that test_layers.py proves, here of rows that all have as many."""

from __future__ import annotations

from layer_table import Row

from sparkdl.layers.bidirectional import Bidirectional
from sparkdl.layers.gru import Gru
from sparkdl.layers.lstm import GravesLstm, Lstm
from sparkdl.layers.merge import Add, Multiply
from sparkdl.layers.simple_rnn import SimpleRnn

RECURRENT = [
    Row(SimpleRnn(3), (4, 2), refused=(4,)),
    Row(SimpleRnn(2, activation="relu", backwards=True, bias=False), (3, 2), refused=()),
    Row(Lstm(3), (4, 2), refused=(2, 4, 2)),
    Row(Lstm(2, backwards=True, bias=False, dropout=0.4, recurrent_dropout=0.3), (3, 3), refused=(3,)),
    Row(GravesLstm(3, l2=0.1), (4, 2), refused=(4,)),
    Row(GravesLstm(2, backwards=True, recurrent_dropout=0.4), (3, 2), refused=(4,)),
    Row(Gru(3), (4, 2), refused=(4,)),
    Row(Gru(2, reset_after=False, recurrent_dropout=0.4), (3, 2), refused=(2, 3, 2)),
    Row(Gru(3, backwards=True, bias=False, dropout=0.3, recurrent_dropout=0.4, constraint="unit_norm"), (2, 3)),
]

BOTH_WAYS = [
    Row(Bidirectional(Lstm(2)), (3, 2)),
    Row(Bidirectional(Gru(2, dropout=0.3), Add()), (3, 2)),
    Row(Bidirectional(SimpleRnn(2), merge=Multiply()), (2, 3)),
]
