"""What the two ends of a gRPC connection agree on: method, options, credentials."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from coterie.errors import InputError
from coterie.links.keys import NAME, Keys
from coterie.links.roster import PeerEntry, Roster

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its news on stderr would break up ours
try:
    import grpc
except ImportError:
    raise InputError("the link 'grpc' needs grpcio: pip install 'coterie[peer]'") from None

SERVICE, METHOD = "coterie.Link", "Frames"
FROM, TO, SESSION = "coterie-from", "coterie-to", "coterie-session"  # what a call says of itself
LARGEST = 4 << 20  # bytes of a chunk, whatever the other side chooses

_BOTH: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", LARGEST + 64),
    ("grpc.keepalive_time_ms", 10_000),  # finds machines that vanished without a word
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
]
_SERVER: list[tuple[str, Any]] = [
    ("grpc.so_reuseport", 0),  # a second peer on the same port is an error, not a coin toss
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_concurrent_streams", 4),
    ("grpc.max_metadata_size", 4 << 10),
]
_CHANNEL: list[tuple[str, Any]] = [
    ("grpc.use_local_subchannel_pool", 1),  # every attempt connects anew; the pauses are ours
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
]


@dataclass(frozen=True)
class Settings:
    """Sizes and times of a link."""

    chunk: int = 1 << 20  # bytes of a frame in one message
    queue_frames: int = 256  # frames that may wait for one peer
    queue_bytes: int = 256 << 20  # bytes that may wait for one peer
    patience: float = 60.0  # seconds without confirmation after which a full queue drops frames
    answer: float = 10.0  # seconds in which a peer must answer to a connection
    shortest: float = 0.1  # seconds before the first attempt to connect again, then doubled
    longest: float = 5.0  # seconds between two attempts at most
    watch: float = 10.0  # seconds between two looks at connections that were refused
    grace: float = 10.0  # seconds in which closing sends what is queued

    def __post_init__(self) -> None:
        if not 16 << 10 <= self.chunk <= LARGEST:
            raise InputError(f"chunks have 16 KiB to {LARGEST >> 20} MiB; got {self.chunk} bytes")


@dataclass
class Knocks:
    """Connections that began a handshake and those that came through it, to tell of the rest."""

    begun: int = 0
    proven: int = 0
    _settled: int = 0  # had begun when somebody asked before, so that they have had their time
    _told: int = 0

    def begin(self) -> None:
        """A handshake begins; gRPC calls this in a thread of its own."""
        self.begun += 1

    def refused(self) -> int:
        """How many more have failed since the last time somebody asked."""
        failed = max(self._settled - self.proven - self._told, 0)
        self._settled = self.begun
        self._told += failed
        return failed


def server(keys: Keys | None, roster: Roster, address: str, knocks: Knocks) -> Any:
    """A server that listens on this address; with keys, to the certificates of the list alone."""
    options = _BOTH + _SERVER
    made = grpc.aio.server(options=options, maximum_concurrent_rpcs=4 * len(roster.peers) + 16)
    try:
        if keys is None:
            made.add_insecure_port(address)
        else:
            made.add_secure_port(address, _server_credentials(keys, roster, knocks))
    except RuntimeError:
        raise InputError(
            f"cannot listen on {address}: is another peer using the port, or is the address not "
            "one of this machine?"
        ) from None
    return made


def channel(keys: Keys | None, entry: PeerEntry) -> Any:
    """A channel to a peer; with keys, to the holder of exactly its certificate."""
    options = _BOTH + _CHANNEL
    if keys is None:
        return grpc.aio.insecure_channel(entry.address, options=options)
    # The only root is the peer's own certificate: nobody without its key passes the handshake.
    credentials = grpc.ssl_channel_credentials(entry.certificate, keys.key, keys.certificate)
    options += [("grpc.ssl_target_name_override", NAME)]
    return grpc.aio.secure_channel(entry.address, credentials, options=options)


def _server_credentials(keys: Keys, roster: Roster, knocks: Knocks) -> Any:
    roots = b"".join(peer.certificate for peer in roster.peers)
    pair = (keys.key, keys.certificate)
    same = grpc.ssl_server_certificate_configuration([pair], roots)
    # A handshake that fails leaves no trace in Python; asked for news, we hear of its beginning.
    return grpc.dynamic_ssl_server_credentials(
        same, knocks.begin, require_client_authentication=True
    )
