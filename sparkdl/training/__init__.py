"""Training without Spark: from arrays or Arrow files, with one process or many."""

from sparkdl.training.checkpoints.checkpoints import Checkpoints as Checkpoints
from sparkdl.training.exchanges.all_reduce import AllReduce as AllReduce
from sparkdl.training.exchanges.averaging import ParameterAveraging as ParameterAveraging
from sparkdl.training.exchanges.exchange import Exchange as Exchange
from sparkdl.training.exchanges.sharded import ShardedAllReduce as ShardedAllReduce
from sparkdl.training.exchanges.threshold import AdaptiveThreshold as AdaptiveThreshold
from sparkdl.training.exchanges.threshold import FixedThreshold as FixedThreshold
from sparkdl.training.exchanges.threshold import TargetSparsity as TargetSparsity
from sparkdl.training.exchanges.threshold import ThresholdSharing as ThresholdSharing
from sparkdl.training.options import Training as Training
from sparkdl.training.records.logs import Logs as Logs
from sparkdl.training.results import Epoch as Epoch
from sparkdl.training.results import Result as Result
from sparkdl.training.stopping import EarlyStopping as EarlyStopping
from sparkdl.training.trainer import fit as fit
