"""Weights from elsewhere and to elsewhere, in files that nothing is run from."""

from sparkdl.interchange.keras_in.loading import load_keras as load_keras
from sparkdl.interchange.weight_files import load_weights as load_weights
from sparkdl.interchange.weight_files import save_weights as save_weights
