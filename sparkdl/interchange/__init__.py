"""Weights from elsewhere and to elsewhere, in files that nothing is run from."""

from sparkdl.interchange.keras_in.loading import load_keras as load_keras
from sparkdl.interchange.mllib import from_mllib as from_mllib
from sparkdl.interchange.onnx_files import save_onnx as save_onnx
from sparkdl.interchange.onnx_in.loading import load_onnx as load_onnx
from sparkdl.interchange.weight_files import load_weights as load_weights
from sparkdl.interchange.weight_files import save_weights as save_weights
