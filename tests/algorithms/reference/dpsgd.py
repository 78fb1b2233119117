"""D-PSGD (Lian et al., 2017) with the Metropolis-Hastings weights of its implementations."""


def run(params, rounds, train, edges):
    """Train, send to the neighbors, x_i <- sum over j of W_ij x_j."""
    params = list(params)
    n = len(params)
    for t in range(rounds):
        trained = [train(i, params[i], t) for i in range(n)]
        neighbors = [[j for j, target in edges(t) if target == i] for i in range(n)]
        for i in range(n):
            W = {
                j: 1 / (1 + max(len(neighbors[i]), len(neighbors[j])))  # W_ij
                for j in neighbors[i]
            }
            W[i] = 1 - sum(W.values())  # W_ii
            params[i] = sum(W[j] * trained[j] for j in W)
    return params
