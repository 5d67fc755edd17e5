"""Training without Spark: from arrays or Arrow files, with one process or many."""

from sparkdl.training.all_reduce import AllReduce as AllReduce
from sparkdl.training.averaging import ParameterAveraging as ParameterAveraging
from sparkdl.training.checkpoints import Checkpoints as Checkpoints
from sparkdl.training.exchange import Exchange as Exchange
from sparkdl.training.logs import Logs as Logs
from sparkdl.training.options import Training as Training
from sparkdl.training.results import Epoch as Epoch
from sparkdl.training.results import Result as Result
from sparkdl.training.sharded import ShardedAllReduce as ShardedAllReduce
from sparkdl.training.stopping import EarlyStopping as EarlyStopping
from sparkdl.training.threshold import AdaptiveThreshold as AdaptiveThreshold
from sparkdl.training.threshold import FixedThreshold as FixedThreshold
from sparkdl.training.threshold import TargetSparsity as TargetSparsity
from sparkdl.training.threshold import ThresholdSharing as ThresholdSharing
from sparkdl.training.trainer import fit as fit
