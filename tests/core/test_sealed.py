"""A sealed inbox: sums in fixed point, and nothing else."""

from __future__ import annotations

import pytest
import torch

from coterie.core.fixed_point import MODULUS, decode, encode, exponents, scale_of
from coterie.core.graphs import Full, Graph, Ring, union
from coterie.core.messages import Fetch, Inbox, Listen, Message, Send, mean, mix
from coterie.runtimes.lockstep import DirectExchange, play
from tests.core.test_messages import graph_of, rows_of

N = 5


def heard(message: Message, n: int = N) -> Inbox:
    return DirectExchange(n).superstep(0, 0, [torch.arange(n)], [message])[0]


def full(n: int = N) -> Graph:
    return union([Full().edges(n, 0, 0)], n)


def sealed(rows: torch.Tensor) -> Inbox:
    return heard(Send({"x": rows}, full(len(rows)), sealed=True), len(rows))


def test_a_sealed_inbox_refuses_single_rows() -> None:
    inbox = sealed(rows_of(N, 3))
    with pytest.raises(PermissionError, match="'x' is sealed"):
        inbox["x"]


@pytest.mark.parametrize("weight", [torch.ones(20), torch.eye(20)[0]], ids=["ones", "one row"])
def test_a_sealed_inbox_refuses_weights_that_would_single_out_a_row(weight: torch.Tensor) -> None:
    with pytest.raises(PermissionError, match="gives one sum of each name"):
        sealed(rows_of(N, 3)).sum("x", weight)
    with pytest.raises(PermissionError, match="gives one sum of each name"):
        mix(rows_of(N, 3), sealed(rows_of(N, 3)), "x", keep=weight.bool())


def test_a_sealed_inbox_refuses_tensors_of_the_callers_making() -> None:
    with pytest.raises(PermissionError, match="gives one sum of each name"):
        sealed(rows_of(N, 3)).sum(torch.eye(N))


def test_metropolis_weights_have_to_be_announced_and_are_then_the_only_ones() -> None:
    rows, graph = rows_of(N, 3), graph_of((0, 1), (1, 0), (2, 1), (1, 2), (0, 2), (2, 0), n=N)
    plain = heard(Send({"x": rows}, graph))
    inbox = heard(Send({"x": rows}, graph, sealed=True, metropolis=True))
    expected = plain.sum("x", plain.metropolis)
    assert torch.allclose(inbox.sum("x", inbox.metropolis), expected, rtol=0, atol=1e-7)
    with pytest.raises(PermissionError, match="or by inbox"):
        inbox.sum("x")
    unannounced = heard(Send({"x": rows}, graph, sealed=True))
    with pytest.raises(PermissionError, match="metropolis"):
        unannounced.sum("x", unannounced.metropolis)


def test_a_sealed_sum_is_the_plain_sum_to_a_hundred_millionth() -> None:
    rows = rows_of(N, 3)
    plain = heard(Send({"x": rows}, full()))
    assert torch.allclose(sealed(rows).sum("x"), plain.sum("x"), rtol=0, atol=1e-7)
    own = rows_of(N, 3)
    assert torch.allclose(mix(own, sealed(rows), "x"), mix(own, plain, "x"), rtol=0, atol=1e-7)
    nothing = torch.zeros_like(own)
    found = mean(sealed(rows), "x", otherwise=nothing)
    assert torch.allclose(found, mean(plain, "x", otherwise=nothing), rtol=0, atol=1e-7)


def test_nobody_gets_the_sum_of_one() -> None:
    rows = rows_of(N, 3)
    graph = graph_of((0, 1), (0, 2), (3, 2), (4, 3), n=N)
    inbox = heard(Send({"x": rows}, graph, sealed=True))
    assert inbox.count().tolist() == [0, 0, 2, 0, 0]
    assert inbox.sum("x")[1].tolist() == [0, 0, 0]
    assert torch.equal(mix(rows, inbox, "x")[3], rows[3])


def test_two_rows_of_one_sender_are_still_one_sender() -> None:
    message = Send({"x": rows_of(2, 3)}, graph_of((0, 1), n=2), torch.tensor([0, 0]), sealed=True)
    assert heard(message, 2).count().tolist() == [0, 0]


def test_an_answer_is_sealed_as_a_letter_is() -> None:
    rows = rows_of(N, 3)
    of = torch.tensor([[1, 2], [0, -1], [3, 4], [-1, -1], [1, 1]])
    inbox = heard(Fetch({"x": rows}, of, sealed=True))
    assert inbox.count().tolist() == [2, 0, 2, 0, 0]
    assert torch.allclose(inbox.sum("x")[0], rows[1] + rows[2], rtol=0, atol=1e-7)


def test_blocks_do_not_change_sealed_sums() -> None:
    rows, graph = rows_of(N, 3), union([Ring().edges(N, 0, 0)], N)
    alone = heard(Send({"x": rows}, graph, sealed=True)).sum("x")
    parts = [torch.arange(0, 2), torch.arange(2, N)]
    messages: list[Message] = [Send({"x": rows[part]}, graph, sealed=True) for part in parts]
    inboxes = DirectExchange(N).superstep(0, 0, parts, messages)
    assert torch.equal(torch.cat([inbox.sum("x") for inbox in inboxes]), alone)


def test_large_numbers_get_a_wider_clip_instead_of_being_cut() -> None:
    rows = rows_of(N, 3) * 1e6
    plain = heard(Send({"x": rows}, full()))
    assert torch.allclose(sealed(rows).sum("x"), plain.sum("x"), rtol=1e-6, atol=0.1)


def test_large_buffers_do_not_make_weights_coarse() -> None:
    rows, apart = rows_of(N, 5), torch.tensor([False, True, False, True, False])
    rows[:, apart] *= 1e6
    plain = heard(Send({"x": rows}, full())).sum("x")
    alike = sealed(rows).sum("x")
    found = heard(Send({"x": rows}, full(), sealed=True, apart=apart)).sum("x")
    assert float((alike - plain)[:, ~apart].abs().max()) > 1e-5
    assert torch.allclose(found[:, ~apart], plain[:, ~apart], rtol=0, atol=1e-7)
    assert torch.allclose(found[:, apart], plain[:, apart], rtol=1e-7, atol=0.1)


def test_whole_numbers_stay_whole() -> None:
    counts = torch.tensor([400.0, 17.0, 1.0, 1562.0, 3.0])
    assert sealed(counts).sum("x").tolist() == [counts.sum() - own for own in counts]


def test_a_diverged_row_reaches_those_who_heard_it_and_nobody_else() -> None:
    rows = rows_of(N, 3)
    rows[0, 1] = torch.nan
    graph = graph_of((0, 1), (2, 1), (2, 3), (4, 3), n=N)
    found = heard(Send({"x": rows}, graph, sealed=True)).sum("x")
    assert found[1].isnan().all() and found[3].isfinite().all()


def test_no_sum_under_the_clip_wraps() -> None:
    for terms in (2, 3, 5, 64):
        for most in (8.0, 7.9, 8.1, 1e5):
            rows = torch.full((terms, 1), most, dtype=torch.float64)
            scale = scale_of(torch.tensor(terms), exponents(rows).amax())
            total = encode(rows, scale).sum() % MODULUS
            assert decode(total, scale).item() == pytest.approx(terms * most, rel=1e-6)
            assert decode(encode(-rows, scale).sum(), scale) == pytest.approx(-terms * most)


def test_everybody_seals_a_superstep_or_nobody() -> None:
    rows, graph = rows_of(2, 3), graph_of((0, 1), (1, 0), n=2)

    def program(message: Message):  # type: ignore[no-untyped-def]
        yield message

    keys = [torch.tensor([0]), torch.tensor([1])]
    messages = [Send({"x": rows[:1]}, graph, sealed=True), Listen(graph, {"x": rows[:0]})]
    with pytest.raises(RuntimeError, match="some blocks sealed superstep 0 and some did not"):
        play(0, keys, [program(message) for message in messages], DirectExchange(2))
