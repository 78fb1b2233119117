"""The papers' boxes, node after node: slow, literal, and the specification of `coterie.algorithms`.

`train(node, params, t)` returns the node's params after its local steps of round t, `edges(t)` the
directed pairs (source, target) of round t. Params are float64 vectors.
"""
