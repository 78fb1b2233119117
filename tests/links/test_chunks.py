import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.links.chunks import SMALLEST, START, Assembler, split
from coterie.links.wire import WireError


@given(st.lists(st.integers(1, 5 * SMALLEST), max_size=4), st.integers(SMALLEST, 3 * SMALLEST))
def test_frames_that_were_split_come_together_again(sizes: list[int], chunk: int) -> None:
    frames = [bytes([number]) * size for number, size in enumerate(sizes)]
    assembler = Assembler(5 * SMALLEST)
    got = []
    for number, frame in enumerate(frames, start=1):
        messages = list(split(number, frame, chunk))
        assert all(len(message) <= chunk + START.size for message in messages)
        done = [assembler.add(message) for message in messages]
        assert done[:-1] == [None] * (len(done) - 1)
        got.append(done[-1])
        assert assembler.number == number
    assert got == frames


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(0, 100))
def test_arbitrary_messages_are_refused_or_hold_what_they_announce(
    messages: list[bytes], limit: int
) -> None:
    assembler = Assembler(limit)
    try:
        for message in messages:
            frame = assembler.add(message)
            assert frame is None or 0 < len(frame) <= limit
    except WireError:
        pass


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.binary(max_size=100))
def test_a_first_message_is_a_frame_a_beginning_or_refused(
    number: int, length: int, data: bytes
) -> None:
    assembler = Assembler(50)
    try:
        frame = assembler.add(START.pack(number, length) + data)
    except WireError:
        assert not (number > 0 and 0 < length <= 50 and len(data) == length)
    else:
        assert frame == data and len(data) == length <= 50


def test_the_same_number_does_not_come_twice() -> None:
    assembler = Assembler(50)
    assert assembler.add(START.pack(7, 1) + b"x") == b"x"
    with pytest.raises(WireError, match="frame 7 came after frame 7"):
        assembler.add(START.pack(7, 1) + b"x")
