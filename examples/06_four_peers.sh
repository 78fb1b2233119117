#!/bin/sh
# Four real peers on this machine: four processes, four keys, mutual TLS, one report.
set -e
cat > peers.toml <<'TOML'
[experiment]
name = "four"
seeds = [1]
rounds = 40

[data]
source = { name = "synthetic", classes = 4 }

[[data.clusters]]
name = "majority"
nodes = 3

[[data.clusters]]
name = "minority"
nodes = 1
shifts = [{ name = "swap", pairs = [[0, 1], [2, 3]] }]

[model]
name = "mlp"
hidden = [16]

[[algorithm]]
name = "facade"
degree = 2
warmup = 1
TOML
rounds="experiment.rounds=${COTERIE_EXAMPLE_ROUNDS:-40}"
${COTERIE:-coterie} launch peers.toml --peers 4 --out runs/four --set "$rounds"
${COTERIE:-coterie} status runs/four
