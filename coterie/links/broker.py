"""A broker: how to reach one, and a small one inside this process for a trial on a laptop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from coterie.errors import InputError
from coterie.links.ending import end, within

try:
    import aiomqtt
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties
    from paho.mqtt.subscribeoptions import SubscribeOptions
except ImportError:
    raise InputError("this link needs aiomqtt: pip install 'coterie[peer]'") from None

PASSWORD = "COTERIE_BROKER_PASSWORD"  # the environment variable that holds it
_LOG = logging.getLogger(__name__)
_QUIET = logging.getLogger("coterie.links.broker.client")  # the link itself says what happens
_QUIET.setLevel(logging.CRITICAL + 1)
_ENDING = 10.0  # seconds for the embedded one and its connections to end
_REFUSED = {132, 133, 134, 135, 138, 140, 149}  # reasons that waiting does not change


@dataclass(frozen=True)
class Bounds:
    """What a connection holds at most."""

    packet: int  # bytes of a message that the broker may send us
    queue: int  # messages that wait to be looked at
    inflight: int  # messages that the broker has not confirmed


@dataclass(frozen=True)
class Broker:
    """Where a broker is, and how to be let in."""

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    version: int = 5  # of MQTT; 4 means 3.1.1, which the embedded broker speaks

    @classmethod
    def at(
        cls,
        url: str,
        ca: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> Broker:
        """From mqtts://user@host:port, or mqtt:// on this machine; see PASSWORD."""
        parts = urlsplit(url)
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or parts.password:
            raise InputError(
                f"a broker is mqtts://user@host:port, got {parts.scheme}://{parts.hostname};"
                f" the password belongs into {PASSWORD}"
            )
        secure = parts.scheme == "mqtts"
        port = parts.port or (8883 if secure else 1883)
        tls = tls_context(ca, certificate, key) if secure else None
        return cls(parts.hostname, port, parts.username, os.environ.get(PASSWORD), tls)

    @property
    def loopback(self) -> bool:
        """Whether it is on this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @contextlib.asynccontextmanager
    async def connect(self, name: str, topic: str, bounds: Bounds) -> AsyncIterator[aiomqtt.Client]:
        """A connection that is subscribed to a topic."""
        async with self._client(name, bounds) as client:
            await self._subscribe(client, topic)
            yield client

    @property
    def _modern(self) -> bool:
        return self.version == aiomqtt.ProtocolVersion.V5

    def _client(self, name: str, bounds: Bounds) -> aiomqtt.Client:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.MaximumPacketSize = bounds.packet
        made = aiomqtt.Client(
            self.host,
            self.port,
            identifier=name,
            username=self.user,
            password=self.password if self.user is not None else None,
            protocol=aiomqtt.ProtocolVersion(self.version),
            clean_session=None if self._modern else True,
            properties=properties if self._modern else None,
            keepalive=30,
            timeout=10,
            max_queued_incoming_messages=bounds.queue,
            max_inflight_messages=bounds.inflight,
            tls_context=self.tls,
            logger=_QUIET,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        )
        made.pending_calls_threshold = bounds.queue
        return made

    async def _subscribe(self, client: aiomqtt.Client, topic: str) -> None:
        if self._modern:  # without what was retained under the topic
            options = SubscribeOptions(qos=1, noLocal=True, retainHandling=2)
            granted = await client.subscribe(topic, options=options)
        else:
            granted = await client.subscribe(topic, qos=1)
        codes = [code if isinstance(code, int) else code.value for code in granted]
        if any(code >= 128 for code in codes):
            raise InputError(f"the broker does not let us subscribe to {topic}; check its ACL")


class _Socket(ssl.SSLSocket):
    """A TLS socket that is closed where its handshake fails: the client leaves it open."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            ssl.SSLSocket.do_handshake(self, block)
        except BaseException:
            self.close()
            raise


def tls_context(
    ca: Path | None, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """Trust in a certificate authority (else the system's), with a client certificate if given."""
    try:
        context = ssl.create_default_context(cafile=ca)
        context.sslsocket_class = _Socket
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except OSError as error:
        raise InputError(f"cannot set up TLS towards the broker with {ca}: {error}") from None
    return context


def refusal(error: BaseException, broker: Broker) -> InputError | None:
    """What to tell the user when a broker turns us away for good; None if waiting may help."""
    where = f"the broker {broker.host}:{broker.port}"
    if isinstance(error, InputError):
        return error
    if isinstance(error, aiomqtt.exceptions.MqttConnectError):
        code = error.rc if isinstance(error.rc, int) else getattr(error.rc, "value", 0)
        if code in _REFUSED:
            return InputError(f"{where} refuses user {broker.user!r}: {error}; see also {PASSWORD}")
    if isinstance(error.__context__, ssl.SSLError):
        return InputError(
            f"no TLS connection to {where}: {error}; check its certificate and the CA"
        )
    if isinstance(error.__context__, socket.gaierror):
        return InputError(f"no such host: {broker.host}: {error}")
    return None


@contextlib.asynccontextmanager
async def embedded_broker() -> AsyncIterator[int]:
    """A broker inside this process; gives its port on loopback. It speaks MQTT 3.1.1: version 4."""
    try:
        from amqtt.broker import Broker as Amqtt
    except ImportError:
        raise InputError("an embedded broker needs amqtt: pip install 'coterie[broker]'") from None
    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    config = {"listeners": {"default": {"type": "external"}}, "plugins": plugins}
    with _silence("amqtt"), _silence("transitions"):
        made = Amqtt(config)
        await made.start()
        async with _listen(made) as port:
            yield port


@contextlib.asynccontextmanager
async def _listen(broker: Any) -> AsyncIterator[int]:
    """Accept connections for a broker; none is left open at the end."""
    from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter

    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            ends = StreamReaderAdapter(reader), StreamWriterAdapter(writer)
            await broker.external_connected(*ends, "default")
        except Exception as error:  # of one connection; the others go on
            _LOG.debug("a connection to the embedded broker failed: %s", error)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        serving.add(task)
        task.add_done_callback(serving.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        ended = await within(_ENDING, broker.shutdown())
        if serving:
            await asyncio.wait(serving, timeout=0.5)  # of themselves
        if not (await end(serving, _ENDING) and ended):
            _LOG.warning("the embedded broker does not end, and is left behind")


@contextlib.contextmanager
def _silence(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
