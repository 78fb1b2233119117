"""The link within one process."""

from coterie.links.memory import MemoryLink


def test_a_mailbox_gives_its_frames_once_and_in_order() -> None:
    link = MemoryLink()
    link.send(1, b"a")
    link.send(2, b"b")
    link.send(1, b"c")
    assert link.receive(1) == [b"a", b"c"]
    assert link.receive(1) == []
    assert link.receive(2) == [b"b"]
