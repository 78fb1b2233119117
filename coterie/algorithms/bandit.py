"""A bandit over groups of peers: Tsallis-INF on the groups that overlaps have not ruled out.

Nothing here has a row for each arm and pull: an arm's pseudo-rewards depend on a tried arm only
through their overlap, and all untried arms have the same weight. Steps are numbered as on
docs/papers/ppdl.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.algorithms.groups import Groups
from coterie.core import uniform

AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 28}  # arms times nodes that are weighed together
STEPS = 48  # of Newton; 21 are enough for 150,000 arms, and three more for every factor of ten
ROOM = 16  # tried arms for which room is made at a time


@dataclass(frozen=True)
class Bandit:
    """What each node knows of the arms it tried, in the order of their first trial."""

    arm: Tensor  # [m, S]; -1: none
    pulls: Tensor  # [m, S]
    rewards: Tensor  # [m, S] their sum
    pseudo: Tensor  # [m, S, M] the sum of pseudo-rewards of arms that share 1, 2, ... M peers
    losses: Tensor  # [m, S] cumulative importance-weighted losses

    @property
    def tried(self) -> Tensor:
        """Which of the places are filled: [m, S]."""
        return self.arm >= 0

    @property
    def mean(self) -> Tensor:
        """The mean reward of every tried arm: [m, S]."""
        return self.rewards / self.pulls.clamp(min=1)


@dataclass(frozen=True)
class Choice:
    """The arms that nodes drew."""

    arm: Tensor  # [m]
    chance: Tensor  # [m] the probability with which it was drawn
    competitive: Tensor  # [m] how many arms were left to draw from


def no_trials(rows: int, largest: int, device: torch.device) -> Bandit:
    """The bandits of nodes that have tried nothing."""
    arm = torch.full((rows, 0), -1, device=device)
    empty = torch.zeros(rows, 0, dtype=torch.float64, device=device)
    pseudo = empty[..., None].expand(-1, -1, largest)
    return Bandit(arm, arm.clone(), empty, pseudo, empty.clone())


def roomy(bandit: Bandit, t: int) -> Bandit:
    """The same with room for one more arm in every round up to t."""
    more = -(-(t + 1) // ROOM) * ROOM - bandit.arm.shape[1]  # of t alone: equal in every block
    if more <= 0:
        return bandit
    rows = len(bandit.arm)
    return Bandit(
        torch.cat([bandit.arm, bandit.arm.new_full((rows, more), -1)], 1),
        *(
            torch.cat([old, old.new_zeros(rows, more, *old.shape[2:])], 1)
            for old in (bandit.pulls, bandit.rewards, bandit.pseudo, bandit.losses)
        ),
    )


def choose(bandit: Bandit, groups: Groups, words: Tensor) -> Choice:
    """Draw an arm for each node from the weights of its competitive arms; `words` [m]."""
    at_once = max(1, AT_ONCE[words.device.type] // len(groups))
    parts = [
        _choose(_rows(bandit, rows), groups, words[rows])
        for rows in torch.arange(len(words), device=words.device).split(at_once)
    ]
    if not parts:
        return Choice(words, words.double(), words)
    return Choice(
        torch.cat([part.arm for part in parts]),
        torch.cat([part.chance for part in parts]),
        torch.cat([part.competitive for part in parts]),
    )


def _rows(bandit: Bandit, rows: Tensor) -> Bandit:
    return Bandit(*(values[rows] for values in vars(bandit).values()))


def _choose(bandit: Bandit, groups: Groups, words: Tensor) -> Choice:
    allowed = competitive(bandit, groups)  # 1
    tried = bandit.tried
    weight, untried = weights(bandit, len(groups))  # 2
    weight = weight * (allowed.gather(1, bandit.arm.clamp(min=0)) & tried)
    fresh = _put(allowed, bandit.arm, tried, False)
    count = fresh.sum(1)
    mass = untried * count
    total = mass + weight.sum(1)
    point = uniform(words) * total  # 3: untried arms come first, then the tried ones
    number = (point / untried.clamp(min=1e-300)).long().minimum(count - 1).clamp(min=0)
    first = torch.searchsorted(fresh.cumsum(1, dtype=torch.int32), (number + 1)[:, None].int())
    slot = _slot(weight, point - mass)
    again = bandit.arm.gather(1, slot[:, None])[:, 0]
    new = (point < mass) & (count > 0)
    arm = torch.where(new, first[:, 0], again)
    chance = torch.where(new, untried, weight.gather(1, slot[:, None])[:, 0]) / total
    return Choice(arm, chance, count + (weight > 0).sum(1))


def _slot(weight: Tensor, point: Tensor) -> Tensor:
    """The place in which a point falls when weights [m, S] are laid end to end: [m]."""
    ends = weight.cumsum(1)
    last = torch.where(weight > 0, torch.arange(weight.shape[1], device=weight.device), 0).amax(1)
    return (ends <= point[:, None]).sum(1).minimum(last)


def weights(bandit: Bandit, arms: int) -> tuple[Tensor, Tensor]:
    """Tsallis-INF weights of the tried arms [m, S], and the one that all untried arms have [m].

    w = 4 / (eta (L - x))^2 with the x at which all of them add up to 1, by Newton from the right,
    where the iteration falls monotonically to the root.
    """
    tried = bandit.tried
    rest = arms - tried.sum(1)
    rate = 2 / torch.sqrt(bandit.pulls.sum(1).double() + 1)
    least = torch.where(tried, bandit.losses, torch.inf).amin(1)
    x = torch.where(rest > 0, torch.zeros_like(least), least) - 2 / rate
    for _ in range(STEPS):  # the same number for all: rows must not depend on each other
        each, other = _weights(bandit.losses, tried, rate, x)
        excess = each.sum(1) + rest * other - 1
        x = x - excess / (rate * (each.pow(1.5).sum(1) + rest * other.pow(1.5)))
    return _weights(bandit.losses, tried, rate, x)


def _weights(losses: Tensor, tried: Tensor, rate: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    each = 4 / (rate[:, None] * (losses - x[:, None])).square()
    return torch.where(tried, each, 0), 4 / (rate * x).square()


def competitive(bandit: Bandit, groups: Groups) -> Tensor:
    """The arms whose every upper bound reaches the best mean, and the best arm: bool [m, N].

    A bound falls with the overlap, so that a tried arm either rules out nothing or all groups that
    share a certain number of peers with it: those that contain a subset of it of that size.
    """
    significant = bandit.pulls * len(groups) > bandit.pulls.sum(1, keepdim=True)
    mean = torch.where(significant, bandit.mean, -torch.inf)
    best = mean.amax(1, keepdim=True)  # [m, 1]
    reached = bandit.pseudo / bandit.pulls.clamp(min=1)[..., None] >= best[..., None]
    shared = torch.where(significant, reached.sum(2) + 1, 0)  # from this overlap on: ruled out
    allowed = _without(shared, bandit, groups)
    allowed = _put(allowed, bandit.arm, significant & (mean < best), False)  # itself: its own mean
    tied = significant & (mean == best)
    first = torch.where(tied, bandit.arm, len(groups)).amin(1, keepdim=True)
    return _put(allowed, first, first < len(groups), True)


def _without(shared: Tensor, bandit: Bandit, groups: Groups) -> Tensor:
    """All groups but those that share so many peers (0: any) with a tried arm: [m, N]."""
    members = groups.members[bandit.arm.clamp(min=0)]  # [m, S, M]
    allowed = _unbanned(1, shared, members, groups)
    levels = [allowed]
    for size, below in enumerate(groups.below, start=2):
        wider = _unbanned(size, shared, members, groups)
        for subset in below.T:
            wider &= allowed[subset]
        allowed = wider
        levels.append(allowed)
    return torch.cat(levels[groups.smallest - 1 :]).T.contiguous()


def _unbanned(size: int, shared: Tensor, members: Tensor, groups: Groups) -> Tensor:
    """The sets of one size that no tried arm rules out: [C, m], so that rows are copied whole."""
    subsets = members[..., groups.subsets[size - 1]]  # [m, S, c, size]
    banned = (shared == size)[..., None] & (subsets >= 0).all(-1)
    row = torch.arange(len(shared), device=shared.device)[:, None, None].expand(banned.shape)
    allowed = torch.ones(
        groups.count(size) + 1, len(shared), dtype=torch.bool, device=shared.device
    )
    where = torch.where(banned, groups.number(subsets), groups.count(size))
    allowed.index_put_((where, row), allowed.new_zeros(()))  # a plain False would be copied
    return allowed[:-1]


def _put(allowed: Tensor, arm: Tensor, which: Tensor, value: bool) -> Tensor:
    """`allowed` [m, N] with another value at some arms [m, k]."""
    wide = torch.nn.functional.pad(allowed, (0, 1))
    return wide.scatter(1, torch.where(which, arm, allowed.shape[1]), value)[:, :-1]


def learn(bandit: Bandit, choice: Choice, reward: Tensor, q: float, met: Tensor) -> Bandit:
    """What nodes know after a reward [m] in 0..1 of their arms; only those that `met` [m] them."""
    same = bandit.arm == choice.arm[:, None]
    slot = torch.where(same.any(1), same.long().argmax(1), bandit.tried.sum(1))
    here = torch.zeros_like(same).scatter(1, slot[:, None], True) & met[:, None]
    overlap = torch.arange(1, bandit.pseudo.shape[2] + 1, device=reward.device)
    bound = (reward[:, None] + q / overlap).clamp(max=1)  # [m, M]
    loss = (1 - reward) / choice.chance
    return Bandit(
        torch.where(here, choice.arm[:, None], bandit.arm),
        bandit.pulls + here,
        bandit.rewards + torch.where(here, reward[:, None], 0),
        bandit.pseudo + torch.where(here[..., None], bound[:, None], 0),
        bandit.losses + torch.where(here, loss[:, None], 0),
    )
