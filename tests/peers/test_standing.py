"""How a peer stands: in a file, as metrics, over HTTP, in a table."""

from __future__ import annotations

import asyncio
import json
import urllib.request

import pytest

from coterie.errors import InputError
from coterie.peers import standing
from coterie.peers.endpoint import endpoint, split
from coterie.peers.standing import Standing, from_metrics, to_metrics
from coterie.peers.survey import asked, in_folder, survey

ONE = Standing(3, 'a "run"\\', "running", 7, 10, 91.25, 0.5, 1200, 96, 1300, 4, 5, 9, 1, 2, 12.5)


def test_metrics_hold_everything():
    assert from_metrics(to_metrics(ONE)) == ONE


def test_what_is_not_measured_is_no_metric():
    server = Standing(-1, "run")
    assert "accuracy" not in to_metrics(server)
    assert from_metrics(to_metrics(server)) == server


def test_every_metric_has_help_and_a_type():
    lines = to_metrics(ONE).splitlines()
    names = {line.split("{")[0] for line in lines if not line.startswith("#")}
    for word in ("HELP", "TYPE"):
        assert {line.split()[2] for line in lines if line.startswith(f"# {word}")} == names


def test_the_lag_is_counted_from_the_furthest():
    assert ONE.lag == 2 and Standing(0, round=5, furthest=4).lag == 0


def test_a_file_is_read_as_it_was_written(tmp_path):
    standing.write(ONE, tmp_path)
    found = standing.read(tmp_path)
    assert found is not None and found.time > 0
    assert {**vars(found), "time": 12.5} == vars(ONE)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 1, "round"'])
def test_half_a_file_is_no_standing(text, tmp_path):
    (tmp_path / standing.FILE).write_text(text)
    assert standing.read(tmp_path) is None


def test_a_folder_of_peers_is_read_whole(tmp_path):
    for peer in (2, 0):
        (tmp_path / "peers" / str(peer)).mkdir(parents=True)
        standing.write(Standing(peer), tmp_path / "peers" / str(peer))
    assert [one.id for one in survey([str(tmp_path)])] == [0, 2]
    assert len(in_folder(tmp_path / "peers" / "2")) == 1


@pytest.mark.parametrize(
    "address, where",
    [("9100", ("127.0.0.1", 9100)), ("h:1", ("h", 1)), ("[::1]:9", ("::1", 9))],
)
def test_a_port_alone_is_on_this_machine(address, where):
    assert split(address) == where


@pytest.mark.parametrize("address", ["", "host", "host:", "host:port", "1:99999"])
def test_what_is_no_port_is_refused(address):
    with pytest.raises(InputError, match="host:port"):
        split(address)


def get(url: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def served(*requests: tuple[str, str]) -> list[tuple[int, str]]:
    async with endpoint("0", lambda: to_metrics(ONE)) as address:
        calls = [asyncio.to_thread(get, f"http://{address}{path}", how) for path, how in requests]
        return await asyncio.gather(*calls)


def test_metrics_are_served_and_nothing_else():
    page, other, wrong = asyncio.run(
        served(("/metrics", "GET"), ("/etc/passwd", "GET"), ("/metrics", "POST"))
    )
    assert page == (200, to_metrics(ONE))
    assert other[0] == 404 and wrong[0] == 405


async def asked_and_left() -> Standing:
    async with endpoint("0", lambda: to_metrics(ONE)) as address:
        host, port = address.split(":")
        for nonsense in (b"", b"\0" * 20000, b"GET /metrics"):  # too little or too much, then gone
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(nonsense)
            await writer.drain()
            writer.close()
        return await asyncio.to_thread(asked, address)


def test_nonsense_does_not_stop_the_endpoint():
    assert asyncio.run(asked_and_left()) == ONE


def test_an_answer_that_is_none_of_ours_is_unreachable():
    async def strange() -> Standing:
        async with endpoint("0", lambda: json.dumps({"hello": "world"})) as address:
            return await asyncio.to_thread(asked, address, 4)

    found = asyncio.run(strange())
    assert (found.id, found.state) == (4, "unreachable")
