"""The link through a real broker."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from coterie.errors import InputError
from coterie.links.broker import PASSWORD, Broker, embedded_broker, tls_context
from coterie.links.mqtt_link import MqttLink, Settings
from tests.links.mosquitto import mosquitto, needs_mosquitto, password_lines, tls_lines
from tests.links.peers import World, fingerprint, finish, identity, until, write

PAGE = Path(__file__).parents[2] / "docs" / "mqtt.md"
FRAMES = [bytes([number]) * number for number in range(1, 41)]
LARGE = bytes(range(256)) * 1000  # bytes, above what goes inline


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with mosquitto(tmp_path_factory.mktemp("mosquitto")) as running:
        yield Broker("127.0.0.1", running.port)


@pytest.fixture
def store(tmp_path):
    return f"file://{tmp_path}/store"


async def converse(world: World) -> None:
    """Two peers exchange frames in both directions."""
    one, two = await world.peer(0).open(), await world.peer(1).open()
    await asyncio.gather(one.send(1, *FRAMES), two.send(0, *FRAMES))
    assert await one.has(40) == await two.has(40) == FRAMES
    assert {sender for sender, _ in one.got} == {1}


@needs_mosquitto
def test_frames_arrive_in_order_in_both_directions(broker):
    async def check():
        async with World(broker) as world:
            await converse(world)
        size = sum(map(len, FRAMES))
        for peer in world.opened:
            assert (peer.link.traffic.sent, peer.link.traffic.received) == (size, size)
            assert peer.link.traffic.uploaded == peer.link.traffic.downloaded == 0

    finish(check())


@needs_mosquitto
def test_large_frames_go_through_the_store_and_are_uploaded_once(broker, store, tmp_path):
    async def check():
        async with World(broker, size=3, store=store) as world:
            peers = [await world.peer(me).open() for me in range(3)]
            await peers[0].send(1, b"before", LARGE, b"after")
            await peers[0].send(2, LARGE)
            assert await peers[1].has(3) == [b"before", LARGE, b"after"]
            assert await peers[2].has(1) == [LARGE]
            sent, read = peers[0].link.traffic, peers[2].link.traffic
            assert sent.uploaded == len(LARGE) and sent.sent == 2 * len(LARGE) + 11
            assert read.downloaded == read.received == len(LARGE)
        assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]

    finish(check())


@needs_mosquitto
def test_a_large_frame_without_a_store_says_what_to_do(broker):
    async def check():
        async with World(broker) as world:
            one = await world.peer(0).open()
            with pytest.raises(InputError, match="name a store"):
                await one.send(1, LARGE)

    finish(check())


@needs_mosquitto
def test_an_unknown_receiver_is_an_error(broker):
    async def check():
        async with World(broker) as world:
            one = await world.peer(0).open()
            with pytest.raises(InputError, match="peer 7 is not known"):
                await one.send(7, b"frame")

    finish(check())


@needs_mosquitto
def test_a_late_joiner_gets_what_is_still_held_for_it(broker):
    async def check():
        settings = Settings(queue=4, patience=0.1)
        async with World(broker, settings=settings) as world:
            one = await world.peer(0).open()
            await one.send(1, *FRAMES)  # nobody is there: the oldest go
            two = await world.peer(1).open()
            assert await two.has(4) == FRAMES[-4:]
            await two.send(0, b"thanks")
            assert await one.has(1) == [b"thanks"]

    finish(check())


@needs_mosquitto
def test_a_slow_receiver_holds_the_sender_back(broker):
    async def check():
        settings = Settings(queue=4, window=2, patience=600.0)
        async with World(broker, settings=settings) as world:
            one, two = await world.peer(0).open(), world.peer(1)
            opened = asyncio.Event()

            async def receive(sender: int, frame: bytes) -> None:
                await opened.wait()
                await two.receive(sender, frame)

            await two.link.open(receive)
            outbox = one.link._peers[1].lane.outbox
            sending = asyncio.create_task(one.send(1, *FRAMES))
            await until(lambda: outbox.full and outbox.waiting)
            await asyncio.sleep(0.3)  # reminders and ticks do not change it
            assert not sending.done() and len(outbox.held) == 4 and not two.got
            opened.set()
            await sending
            assert await two.has(40) == FRAMES

    finish(check())


@needs_mosquitto
def test_one_dead_peer_holds_up_nobody(broker):
    async def check():
        settings = Settings(queue=64, patience=0.2)
        async with World(broker, size=3, settings=settings) as world:
            peers = [await world.peer(me).open() for me in range(3)]
            await peers[0].send(1, b"hello")
            await peers[1].has(1)
            await peers[1].link._stop()  # no bye
            await peers[0].send(1, *FRAMES, *FRAMES, *FRAMES)
            await peers[0].send(2, *FRAMES)
            assert await peers[2].has(40) == FRAMES
            assert len(peers[0].link._peers[1].lane.outbox.held) == 64

    finish(check())


@needs_mosquitto
def test_a_handler_that_fails_does_not_stop_the_frames_after_it(broker, caplog):
    async def check():
        async with World(broker) as world:
            one, two = await world.peer(0).open(), world.peer(1)

            async def receive(sender: int, frame: bytes) -> None:
                if frame == b"bad":
                    raise ValueError("cannot read this")
                await two.receive(sender, frame)

            await two.link.open(receive)
            await one.send(1, b"good", b"bad", b"better")
            assert await two.has(2) == [b"good", b"better"]

    finish(check())
    assert "could not be handled" in caplog.text


@needs_mosquitto
def test_close_waits_for_what_is_queued(broker):
    async def check():
        async with World(broker, settings=Settings(close=60.0)) as world:
            one, two = await world.peer(0).open(), await world.peer(1).open()
            await one.send(1, *FRAMES)
            await one.link.close()
            assert [frame for _, frame in two.got] == FRAMES

    finish(check())


@needs_mosquitto
def test_users_and_passwords(tmp_path, monkeypatch):
    async def check(port: int):
        monkeypatch.setenv(PASSWORD, "secret")
        async with World(Broker.at(f"mqtt://clinic@127.0.0.1:{port}")) as world:
            await converse(world)
        for user, password in (("clinic", "guess"), ("nobody", "secret"), (None, None)):
            wrong = Broker("127.0.0.1", port, user, password)
            with pytest.raises(InputError, match="refuses user"):
                await World(wrong).peer(0).open()

    with mosquitto(tmp_path, *password_lines(tmp_path, {"clinic": "secret"})) as running:
        finish(check(running.port))


@needs_mosquitto
def test_the_access_list_of_the_documentation_lets_peers_talk_and_nobody_pretend(tmp_path):
    listed = [line for line in PAGE.read_text().splitlines() if line.startswith("pattern ")]
    (tmp_path / "acl").write_text("\n".join(listed) + "\n")
    lines = [*password_lines(tmp_path, {"0": "a", "1": "b", "2": "c"}), f"acl_file {tmp_path}/acl"]

    async def check(port: int):
        users = [
            Broker("127.0.0.1", port, *login) for login in (("0", "a"), ("1", "b"), ("2", "c"))
        ]
        worlds = [World(user, run=bytes(16), size=3) for user in users]
        async with worlds[0], worlds[1], worlds[2]:
            one, two = await worlds[0].peer(0).open(), await worlds[1].peer(1).open()
            false = await worlds[2].peer(0).open()  # the login of 2, even with the key of 0
            await one.send(1, b"true")
            await false.send(1, b"false")
            await until(lambda: false.link._client is not None)
            await one.send(1, b"also true")
            assert await two.has(2) == [b"true", b"also true"]
            assert not false.link._peers[1].lane.met

    assert len(listed) == 2
    with mosquitto(tmp_path, *lines) as running:
        finish(check(running.port))


@needs_mosquitto
def test_tls_with_client_certificates(tmp_path):
    server, server_key = write("server", tmp_path)
    clients, client_key = write("client", tmp_path)
    stranger, _ = write("stranger", tmp_path)

    async def check(port: int):
        url = f"mqtts://127.0.0.1:{port}"
        async with World(Broker.at(url, server, clients, client_key)) as world:
            await converse(world)
        with pytest.raises(InputError, match="no TLS connection"):
            await World(Broker.at(url, stranger, clients, client_key)).peer(0).open()
        without = World(Broker.at(url, server), settings=Settings(start=0.5))
        with pytest.raises(InputError):
            await without.peer(0).open()

    with mosquitto(tmp_path, *tls_lines(server, server_key, clients)) as running:
        finish(check(running.port))


def test_the_embedded_broker_needs_nothing_installed_and_says_nothing(caplog, capfd):
    async def check():
        async with (
            embedded_broker() as port,
            World(Broker("127.0.0.1", port, version=4)) as world,
        ):
            await converse(world)

    finish(check())
    leaked = [record for record in caplog.records if record.name != "asyncio"]
    assert not leaked and capfd.readouterr() == ("", "")


def test_no_broker_is_said_after_a_while():
    async def check(port: int):
        world = World(Broker("127.0.0.1", port), settings=Settings(start=0.3))
        with pytest.raises(InputError, match="no broker at"):
            await world.peer(0).open()

    with socket.socket() as held:  # bound, but nobody listens
        held.bind(("127.0.0.1", 0))
        finish(check(held.getsockname()[1]))


def test_a_key_that_the_others_do_not_expect_is_said_at_the_start():
    pins = {0: fingerprint("peer 1"), 1: fingerprint("peer 1")}
    with pytest.raises(InputError, match="the others expect"):
        MqttLink(0, bytes(16), pins, Broker("127.0.0.1", 1), identity("peer 0"))


def test_nothing_leaves_the_machine_unsigned_or_in_plain_text():
    far = Broker("broker.example", 1883)
    with pytest.raises(InputError, match="coterie keys new"):
        MqttLink(0, bytes(16), {1: ""}, replace(far, tls=tls_context(None)))
    with pytest.raises(InputError, match="mqtts://"):
        World(far).peer(0)


@pytest.mark.parametrize("url", ["http://a", "mqtt://", "mqtts://user:secret@a", "a:1883"])
def test_a_url_that_is_no_broker_is_refused(url):
    with pytest.raises(InputError, match="a broker is mqtts") as failure:
        Broker.at(url)
    assert "secret" not in str(failure.value)


def test_without_keys_the_link_says_so(caplog):
    async def check():
        async with embedded_broker() as port:
            here = Broker("127.0.0.1", port, version=4)
            links = [MqttLink(me, bytes(16), {0: "", 1: ""}, here) for me in (0, 1)]
            got: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

            async def receive(sender: int, frame: bytes) -> None:
                got.put_nowait((sender, frame))

            for link in links:
                await link.open(receive)
            await links[0].send(1, b"frame")
            assert await asyncio.wait_for(got.get(), 60) == (0, b"frame")
            for link in links:
                await link.close()

    finish(check())
    assert "not authenticated" in caplog.text
