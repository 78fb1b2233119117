"""What a peer tells about itself while it is at work."""

from __future__ import annotations

import time
from pathlib import Path

from coterie import config as configuration
from coterie.links.loopback import Hub
from coterie.peers import standing
from coterie.peers.choose import choose
from coterie.peers.member import make_member
from coterie.peers.session import Session
from coterie.peers.stopping import Stop
from coterie.run import resolved
from tests.contract.company import listed, real
from tests.contract.test_peers import ALONE


def session(out: Path) -> Session:
    config = configuration.parse(real(**ALONE, peers=listed([7000])))
    member = make_member(resolved(choose(config)), 0, "cpu")
    return Session(member, Hub().link(0), out, lambda line: None, Stop())


def test_a_standing_says_when_it_was_so_in_metrics_as_in_files(tmp_path: Path) -> None:
    began = time.time() - 1
    now = session(tmp_path).standing()
    assert now.state == "starting" and began < now.time < time.time() + 1
    assert standing.from_metrics(standing.to_metrics(now)) == now
    standing.write(now, tmp_path)
    again = session(tmp_path).standing()  # a peer that starts again, and has not begun
    assert again.time >= now.time and again.state == "starting"
