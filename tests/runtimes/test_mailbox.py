import pytest

from coterie.links.wire import WireError
from coterie.runtimes.mailbox import SUPERSTEPS, Late, Mailbox


def box(peers: int = 4, window: int = 2, ahead: int = 1000) -> Mailbox:
    return Mailbox(peers, window, ahead)


def test_frames_are_read_in_the_order_of_their_senders() -> None:
    mail = box()
    for sender in (3, 0, 2):
        mail.put((0, 0), "send", sender, bytes([sender]))
    assert mail.senders((0, 0), "send") == {0, 2, 3}
    assert list(mail.take((0, 0), "send").items()) == [(0, b"\0"), (2, b"\2"), (3, b"\3")]
    assert mail.take((0, 0), "send") == {}
    assert not any(mail.held.values())


def test_early_frames_wait_and_late_ones_are_dropped() -> None:
    mail = box()
    mail.put((2, 1), "send", 0, b"early")
    mail.put((0, 0), "send", 0, b"unread")
    mail.advance((2, 1))
    assert mail.take((2, 1), "send") == {0: b"early"}
    assert mail.held == {0: 0}
    with pytest.raises(Late):
        mail.put((2, 0), "send", 0, b"late")


@pytest.mark.parametrize("place", [(3, 0), (10**9, 0), (0, SUPERSTEPS), (0, -1), (2, -1)])
def test_frames_beyond_the_window_are_refused(place: tuple[int, int]) -> None:
    mail = box()
    with pytest.raises((WireError, Late)):
        mail.put(place, "send", 0, b"")
    assert not mail.frames


def test_a_frame_is_taken_once() -> None:
    mail = box()
    mail.put((1, 0), "send", 0, b"first")
    mail.put((1, 0), "ask", 0, b"another kind")
    with pytest.raises(WireError, match="second 'send'"):
        mail.put((1, 0), "send", 0, b"again")
    assert mail.take((1, 0), "send") == {0: b"first"}


def test_a_peer_that_fills_the_box_does_not_silence_the_others() -> None:
    mail = box(peers=4, ahead=1000)
    for step in range(1, 11):
        mail.put((0, step), "send", 0, bytes(100))
    with pytest.raises(WireError, match="no room"):
        mail.put((0, 11), "send", 0, bytes(100))
    for sender in (1, 2, 3):
        mail.put((0, 1), "send", sender, bytes(250))
        with pytest.raises(WireError, match="no room"):
            mail.put((0, 2), "send", sender, bytes(1))
    assert sum(mail.held.values()) <= 2000


def test_the_superstep_at_hand_has_room_for_everybody_however_large_models_are() -> None:
    mail = box(peers=4, ahead=1000)
    for sender in range(4):
        mail.put((0, 0), "send", sender, bytes(5000))
    mail.put((0, 1), "send", 0, bytes(900))  # and none of it counts for the next
    mail.advance((0, 1))
    for sender in range(1, 4):
        mail.put((0, 1), "send", sender, bytes(5000))
    assert len(mail.take((0, 1), "send")) == 4
    assert not any(mail.held.values())


def test_before_the_start_frames_of_all_possible_first_rounds_are_taken() -> None:
    mail = box()
    mail.await_start((5, 9))
    for t in (5, 9, 11):
        mail.put((t, 0), "send", 0, b"x")
    for t in (4, 12):
        with pytest.raises((WireError, Late)):
            mail.put((t, 0), "send", 1, b"x")
    mail.advance((9, 0))
    assert mail.senders((5, 0), "send") == set()
    assert mail.senders((9, 0), "send") == {0}


def test_whose_question_is_dropped_is_told() -> None:
    mail = box()
    mail.put((1, 0), "ask", 3, b"?")
    mail.put((1, 0), "send", 2, b"x")
    assert mail.advance((1, 0)) == []
    assert mail.advance((1, 1)) == [((1, 0), 3)]
