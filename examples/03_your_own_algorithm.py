"""An algorithm of your own: keep the head at home, average the core with random peers."""

import os
from dataclasses import dataclass

import torch

import coterie as ct


@ct.algorithms.register("stay-home")
@dataclass(frozen=True)
class StayHome(ct.Algorithm):
    """Average cores with random peers; heads never leave."""

    degree: int = 4  # neighbors a round

    def start(self, nodes):
        return ct.State(nodes.initial_params())

    def round(self, t, state, nodes):
        params = nodes.train(state.params, t)
        core, head = params[:, nodes.layout.core], params[:, nodes.layout.head]
        inbox = yield ct.Send({"core": core}, along=nodes.graph(ct.regular(self.degree), t))
        return ct.State(torch.cat([ct.mix(core, inbox, "core"), head], dim=1))

    def personal(self, state, nodes):
        return state.params


rounds = int(os.environ.get("COTERIE_EXAMPLE_ROUNDS", "40"))
config = ct.Config(
    experiment={"name": "stay-home", "seeds": [1], "rounds": rounds},
    algorithm=[ct.Local(), StayHome(degree=4)],
)
results = ct.results(ct.run(config))
print(results[["label", "accuracy_all", "bytes_per_node"]].to_string(index=False))
