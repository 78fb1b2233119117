import pytest
import torch
from torch import Tensor

from coterie.core import Fetch, Full, Listen, Nodes, Ring, Send
from coterie.core.messages import Message
from coterie.errors import InputError
from coterie.links import wire
from coterie.runtimes.packing import check_size, pack, sources, targets, unpack

from ..world import World

RUN = bytes(16)


def alone(me: int = 0, n: int = 3) -> Nodes:
    return World(n=n, counts=(4,) * n).nodes()[torch.tensor([me])]


def send(nodes: Nodes, **rows: Tensor) -> Send:
    return Send(rows or {"x": torch.ones(1, 2)}, nodes.graph(Ring(), 0))


def frame(sender: int, rows: dict[str, Tensor], kind: str = "send") -> bytes:
    return wire.encode(wire.Frame(RUN, 0, 0, sender, kind, rows))


def heard(message: Message, *letters: bytes) -> tuple[list[int], dict[int, str]]:
    """Who of 1, 2, ... is in the inbox of node 0, and who was left out and why."""
    inbox, faults = unpack(message, alone(), dict(enumerate(letters, 1)), wire.Limits())
    return inbox.source.tolist(), faults


def test_a_message_tells_who_hears_whom() -> None:
    nodes = alone(1, n=4)
    assert sources(send(nodes), nodes) == targets(send(nodes), nodes) == [0, 2]
    listen = Listen(nodes.graph(Ring(), 0))
    assert (sources(listen, nodes), targets(listen, nodes)) == ([0, 2], [])
    fetch = Fetch({"x": torch.ones(1, 2)}, torch.tensor([[3, -1, 3, 1]]))  # never oneself
    assert (sources(fetch, nodes), targets(fetch, nodes)) == ([3], [])


def test_nothing_is_packed_where_there_are_no_rows() -> None:
    nodes = alone()
    graph = nodes.graph(Ring(), 0)
    nobody = torch.zeros(0, dtype=torch.int64)
    assert pack(Listen(graph), nodes, RUN, (0, 0)) is None
    assert pack(Send({"x": torch.ones(0, 2)}, graph, nobody), nodes, RUN, (0, 0)) is None
    packed = pack(send(nodes), nodes, RUN, (4, 2))
    assert packed is not None
    header = wire.peek(packed)
    assert (header.round, header.superstep, header.sender, header.kind) == (4, 2, 0, "send")


def test_good_rows_are_heard_in_the_order_of_their_senders() -> None:
    rows = {"x": torch.ones(1, 2)}
    assert heard(send(alone()), frame(1, rows), frame(2, rows)) == ([1, 2], {})


NAN = torch.tensor([[1.0, float("nan")]])
BAD = {
    "another name": {"y": torch.ones(1, 2)},
    "one name too many": {"x": torch.ones(1, 2), "y": torch.ones(1, 2)},
    "another type": {"x": torch.ones(1, 2).double()},
    "another shape": {"x": torch.ones(1, 3)},
    "another number of axes": {"x": torch.ones(1, 2, 1)},
    "no axis": {"x": torch.tensor(1.0)},
    "two rows": {"x": torch.ones(2, 2)},
    "no row": {"x": torch.ones(0, 2)},
    "no rows at all": {},
    "not a number": {"x": NAN},
    "infinite": {"x": NAN * float("inf")},
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("kind", ["send", "fetch"])
def test_rows_that_are_not_what_the_algorithm_sends_are_left_out(kind: str, name: str) -> None:
    good = {"x": torch.ones(1, 2)}
    message = send(alone()) if kind == "send" else Fetch(good, torch.tensor([[1, 2]]))
    assert_left_out = heard(message, frame(1, BAD[name]), frame(2, good))
    assert assert_left_out[0] == [2]
    assert list(assert_left_out[1]) == [1]


def test_a_broken_body_leaves_out_its_sender_alone() -> None:
    good = frame(1, {"x": torch.ones(1, 2)})
    for bad in (good[:-1], good[:40], b"garbage", good[:-60] + b"\xff" * 60):
        source, faults = heard(send(alone()), bad, frame(2, {"x": torch.ones(1, 2)}))
        assert source == [2] and list(faults) == [1]


def test_several_rows_are_heard_where_a_node_may_send_several() -> None:
    nodes = alone()
    zero = torch.zeros(1, dtype=torch.int64)
    message = Send({"x": torch.ones(1, 2)}, nodes.graph(Ring(), 0), zero)
    assert heard(message, frame(1, {"x": torch.ones(3, 2)}))[0] == [1, 1, 1]


def test_tensors_of_one_frame_have_the_same_length() -> None:
    nodes = alone()
    zero = torch.zeros(1, dtype=torch.int64)
    rows = {"x": torch.ones(1, 2), "y": torch.ones(1)}
    message = Send(rows, nodes.graph(Ring(), 0), zero)
    assert heard(message, frame(1, {"x": torch.ones(2, 2), "y": torch.ones(1)}))[0] == []


def test_a_listener_says_what_it_expects_or_takes_what_most_peers_send() -> None:
    graph = alone(n=4).graph(Ring(), 0)
    expecting = Listen(graph, {"x": torch.ones(0, 2)})
    good, bad = {"x": torch.ones(1, 2)}, {"x": torch.ones(1, 9)}
    assert heard(expecting, frame(1, bad))[0] == []
    assert heard(expecting, frame(1, good))[0] == [1]
    full = World(n=6, counts=(4,) * 6).nodes()[torch.tensor([5])]
    everybody = Listen(full.graph(Full(), 0))
    letters = {peer: frame(peer, bad if peer == 0 else good) for peer in range(4)}
    inbox, faults = unpack(everybody, full, letters, wire.Limits())
    assert inbox.source.tolist() == [1, 2, 3]
    assert list(faults) == [0]


def test_an_inbox_without_letters_is_legal() -> None:
    nodes = alone()
    for message in (send(nodes), Listen(nodes.graph(Ring(), 0))):
        assert heard(message) == ([], {})


def test_what_the_others_would_refuse_is_not_sent_and_says_what_to_set() -> None:
    limits = wire.Limits.up_to(1 << 20)
    check_size(None, limits)
    check_size(frame(0, {"x": torch.zeros(1, 1 << 18)}), limits)
    with pytest.raises(InputError, match=r"sends 3 MiB at once.* take 1; set runtime\.largest"):
        check_size(frame(0, {"x": torch.zeros(3, 1 << 18)}), limits)
