"""What a broker, a store and strangers can do to the link: cost time, never order or trust."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiomqtt
import pytest

from coterie.links.broker import Broker
from coterie.links.mqtt_link import Settings
from coterie.links.notes import Note, Route, Seal, encode
from tests.links.mosquitto import mosquitto, needs_mosquitto
from tests.links.peers import PATIENCE, World, finish, identity, until

pytestmark = needs_mosquitto
FRAMES = [bytes([number]) * number for number in range(1, 21)]
LARGE = [bytes([number]) * 100_000 for number in range(3)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with mosquitto(tmp_path_factory.mktemp("mosquitto")) as running:
        yield Broker("127.0.0.1", running.port)


@contextlib.asynccontextmanager
async def stranger(broker: Broker) -> AsyncIterator[aiomqtt.Client]:
    """Somebody whom the broker lets do anything, as the broker itself could."""
    async with aiomqtt.Client(
        broker.host,
        broker.port,
        protocol=aiomqtt.ProtocolVersion.V5,
        timeout=PATIENCE,
        socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
    ) as client:
        yield client


class Recorder:
    """Keeps all that crosses the broker."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self.client = client
        self.heard: list[tuple[str, bytes]] = []

    async def listen(self) -> None:
        async for message in self.client.messages:
            assert isinstance(message.payload, bytes)
            self.heard.append((message.topic.value, message.payload))

    async def replay(self, frames: int) -> None:
        """All again, once at least this many frames were heard."""
        await until(lambda: len(self.heard) >= 2 * frames)  # each was confirmed
        for topic, payload in list(self.heard):
            await self.client.publish(topic, payload, qos=1)


@contextlib.asynccontextmanager
async def recorder(broker: Broker, world: World) -> AsyncIterator[Recorder]:
    async with stranger(broker) as client:
        await client.subscribe(f"coterie/{world.run.hex()}/#", qos=1)
        made = Recorder(client)
        listening = asyncio.create_task(made.listen())
        yield made
        listening.cancel()


def test_what_is_repeated_or_replayed_is_not_taken_again(broker):
    async def check():
        async with World(broker) as world, recorder(broker, world) as tape:
            one, two = await world.peer(0).open(), await world.peer(1).open()
            await one.send(1, *FRAMES)
            await two.has(20)
            await until(lambda: not one.link._peers[1].lane.outbox.held)
            await tape.replay(20)
            await one.send(1, b"after")
            assert await two.has(21) == [*FRAMES, b"after"]

    finish(check())


def test_what_an_earlier_life_received_is_not_taken_again(broker):
    async def check():
        async with World(broker) as world, recorder(broker, world) as tape:
            one, two = await world.peer(0).open(), await world.peer(1).open()
            await one.send(1, *FRAMES)
            await two.has(20)
            await until(lambda: not one.link._peers[1].lane.outbox.held)
            await two.link.close()
            again = await world.peer(1).open()
            await tape.replay(20)
            await one.send(1, b"after")
            assert await again.has(1) == [b"after"]

    finish(check())


def test_what_an_earlier_life_sent_is_not_taken_again(broker):
    async def check():
        async with World(broker) as world, recorder(broker, world) as tape:
            one, two = await world.peer(0).open(), await world.peer(1).open()
            await one.send(1, b"early")
            await two.has(1)
            await one.link._stop()  # a crash: no bye
            again = await world.peer(0).open()
            await again.send(1, b"late")
            assert await two.has(2) == [b"early", b"late"]
            await tape.replay(2)
            await again.send(1, b"later")
            assert await two.has(3) == [b"early", b"late", b"later"]

    finish(check())


def test_retained_messages_do_no_harm(broker):
    async def check():
        async with World(broker) as world, stranger(broker) as client:
            for sender in ("0", "9", "x", "0/0"):
                topic = f"coterie/{world.run.hex()}/to/1/from/{sender}"
                await client.publish(topic, b"junk", qos=1, retain=True)
            one, two = await world.peer(0).open(), await world.peer(1).open()
            await one.send(1, *FRAMES)
            assert await two.has(20) == FRAMES

    finish(check())


def forged(world: World, name: str, sender: int, note: Note) -> bytes:
    return encode(note, Route(world.run, sender, 1), Seal(identity(name), {}))


def test_nobody_speaks_under_the_name_of_another(broker, caplog):
    async def check():
        async with World(broker, size=3) as world, stranger(broker) as client:
            one, two = await world.peer(0).open(), await world.peer(1).open()
            await one.send(1, b"true")
            await two.has(1)
            own, other = two.link._session, one.link._session
            frame = Note("frame", other, own, 2, 2, size=5, body=b"false")
            for name in ("peer 2", "nobody"):
                hello = Note("hello", other, own, 0, 0, body=identity(name).certificate)
                for note in (hello, frame):
                    await client.publish(world.topic(1, 0), forged(world, name, 0, note), qos=1)
            stolen = Note("hello", other, own, 0, 0, body=identity("peer 0").certificate)
            await client.publish(world.topic(1, 0), forged(world, "nobody", 0, stolen), qos=1)
            await client.publish(world.topic(1, 0), b"\x93\xc4\x00\xc4\x00\xc4\x00", qos=1)
            await client.publish(world.topic(1, 7), forged(world, "nobody", 7, frame), qos=1)
            await one.send(1, b"still true")
            assert await two.has(2) == [b"true", b"still true"]

    finish(check())
    assert "the signature is not that of peer 0" in caplog.text
    assert "from nobody we know" in caplog.text


def test_a_peer_with_a_key_that_is_not_its_own_is_refused(broker, caplog):
    async def check():
        settings = Settings(patience=0.1)
        async with World(broker, settings=settings) as world:
            one = await world.peer(0).open()
            two = await world.peer(1, key="another").open()
            await two.send(0, b"frame")
            await until(lambda: "unknown fingerprint" in caplog.text)
            assert not one.got and not one.link._peers[1].lane.met

    finish(check())


def test_a_broker_that_is_killed_and_comes_back_loses_nothing_that_is_held(tmp_path):
    async def check(running):
        settings = Settings(queue=64, patience=600.0)
        world = World(Broker("127.0.0.1", running.port), settings=settings)
        async with world:
            one, two = await world.peer(0).open(), await world.peer(1).open()
            await one.send(1, *FRAMES)
            await two.has(1)  # the others may be anywhere
            running.kill()
            await one.send(1, *FRAMES)
            await two.send(0, *FRAMES)
            running.start()
            assert await two.has(40) == FRAMES + FRAMES
            assert await one.has(20) == FRAMES
            assert {sender for sender, _ in two.got} == {0}

    with mosquitto(tmp_path) as running:
        finish(check(running))


def test_a_peer_that_is_cut_off_goes_on_when_it_is_back(broker):
    async def check():
        async with World(broker, settings=Settings(patience=600.0)) as world:
            one, two = await world.peer(0).open(), await world.peer(1).open()
            for start in range(0, 20, 5):
                await one.send(1, *FRAMES[start : start + 5])
                await two.has(start + 1)
                client = two.link._client
                assert client is not None
                client._disconnected.set_exception(aiomqtt.MqttError("cut by the test"))
                await until(lambda cut=client: two.link._client not in (None, cut))
            assert await two.has(20) == FRAMES

    finish(check())


def objects(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("harm", ["gone", "damaged", "truncated", "elsewhere"])
def test_a_frame_that_the_store_lost_is_left_out_and_the_next_arrives(
    broker, tmp_path, harm, caplog, monkeypatch
):
    monkeypatch.setattr("coterie.links.store._PAUSES", (0.001, 0.001))

    async def check():
        folder = tmp_path / "store"
        async with World(broker, store=f"file://{folder}") as world:
            one = await world.peer(0).open()
            await one.send(1, LARGE[0])
            if harm == "gone":
                objects(folder)[0].unlink()
            if harm == "damaged":
                objects(folder)[0].write_bytes(bytes(len(LARGE[0]) - 1) + b"!")
            if harm == "truncated":
                objects(folder)[0].write_bytes(bytes(10))
            await one.send(1, LARGE[1], b"small")
            theirs = tmp_path / "other" if harm == "elsewhere" else folder
            two = await world.peer(1, store=f"file://{theirs}").open()
            expected = [b"small"] if harm == "elsewhere" else [LARGE[1], b"small"]
            assert await two.has(len(expected)) == expected

    finish(check())
    assert "a frame of peer 0 is lost" in caplog.text


def test_a_store_that_takes_nothing_costs_the_frame_and_not_the_peer(
    broker, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr("coterie.links.store._PAUSES", (0.001, 0.001))

    async def check():
        folder = tmp_path / "store"
        async with World(broker, store=f"file://{folder}") as world:
            one, two = await world.peer(0).open(), await world.peer(1).open()
            folder.rename(tmp_path / "away")
            folder.write_text("not a folder any more")
            await one.send(1, LARGE[0])
            folder.unlink()
            (tmp_path / "away").rename(folder)
            await one.send(1, LARGE[1])
            assert await two.has(1) == [LARGE[1]]

    finish(check())
    assert "is lost" in caplog.text


def test_a_message_larger_than_any_should_be_does_not_reach_the_peer(broker):
    async def check():
        async with World(broker) as world, stranger(broker) as client:
            one, two = await world.peer(0).open(), await world.peer(1).open()
            with contextlib.suppress(aiomqtt.MqttError):
                await client.publish(world.topic(1, 0), bytes(3 << 20), qos=1, timeout=PATIENCE)
            await one.send(1, b"frame")
            assert await two.has(1) == [b"frame"]

    finish(check())


def test_an_announced_size_above_the_limit_is_refused(broker, caplog):
    async def check():
        async with World(broker, size=3, settings=Settings(largest=1000)) as world:
            two, liar = await world.peer(1).open(), await world.peer(2).open()
            await until(lambda: liar.link._peers[1].lane.met and two.link._peers[2].lane.met)
            note = Note(
                *("frame", liar.link._session, two.link._session, 1, 1, False),
                *(bytes(32), 10**12, "file:///far/away"),
            )
            assert liar.link._client is not None
            await liar.link._publish(liar.link._client, 1, note)
            await until(lambda: "larger than any should be" in caplog.text)

    finish(check())
