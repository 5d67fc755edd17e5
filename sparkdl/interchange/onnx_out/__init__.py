"""Networks as ONNX: a function for each kind of layer, which adds the nodes that compute what its `forward` does."""
