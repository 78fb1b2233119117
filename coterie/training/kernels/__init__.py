"""Triton kernels over stacked weights, one file per kind of layer; imported only where a GPU trains.

Activations are [rows, batch, height, width, channels], weights of a convolution are
[rows, kernel height, kernel width, channels in, channels out]. Channels are padded to a power of two.
"""
