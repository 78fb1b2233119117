"""Triton kernels over stacked weights, one file per kind of layer; imported where a GPU trains.

Activations are [rows, batch, height, width, channels], weights of a convolution are
[rows, kernel height, kernel width, channels in, channels out]; channels are padded to a power of 2.
"""

PRECISIONS = {"float32": "ieee", "tf32": "tf32", "bf16": "bf16"}  # as products name them
