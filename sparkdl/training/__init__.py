"""Training without Spark: from arrays or Arrow files, with one process or many."""

from sparkdl.training.exchange import AllReduce as AllReduce
from sparkdl.training.exchange import Exchange as Exchange
from sparkdl.training.trainer import Epoch as Epoch
from sparkdl.training.trainer import Result as Result
from sparkdl.training.trainer import Training as Training
from sparkdl.training.trainer import fit as fit
