"""Networks from ONNX: what its operators compute on arrays, told by layers of ours."""
