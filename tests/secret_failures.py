"""Every way to fail on the way to Redis, with secrets that can be found wherever they should not be."""

import contextlib
import json
import socketserver
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from certificates import TlsFiles
from proxy import TcpProxy
from redis_tools import chain
from servers import SentinelSet, command, require_redis

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST, free_ports

MARKERS = {name: f"{name}{uuid4().hex}" for name in ("pass", "other", "sentinel", "user", "guide")}
"""Found however the text around it is quoted."""
ODD = "p@:/?#[]%2F&=+ü"
"""What means something in URLs."""
SECRET, OTHER_SECRET, SENTINEL_SECRET = (f"{ODD}{MARKERS[name]}" for name in ("pass", "other", "sentinel"))
USER, SENTINEL_USER = MARKERS["user"], MARKERS["guide"]
RIGHT = "another"
"""The password that the servers have and hardly any of the settings below."""


def found_in(texts: Iterable[str]) -> list[str]:
    """The texts that have a secret in them."""
    return [text for text in texts if any(marker in text for marker in MARKERS.values())]


def everything_of(error: BaseException) -> Iterator[str]:
    """All that can be read of an error and of what it goes back to."""
    for each in chain(error):
        yield from (str(each), repr(each), str(each.args), json.dumps(each.__dict__, default=repr))
        yield from traceback.format_exception(each)


class WaywardServer(socketserver.ThreadingTCPServer):
    """A node of a Cluster that says of itself that it has all slots, and of every key that it moved here."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Wayward)
        self.port = int(self.server_address[1])
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def __exit__(self, *exc: object) -> None:
        """Stop, and close."""
        self.shutdown()
        super().__exit__(*exc)


class _Wayward(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        host, port = self.server.server_address[:2]
        node = f"*3\r\n:0\r\n:16383\r\n*3\r\n${len(str(host))}\r\n{host}\r\n:{port}\r\n$1\r\nn\r\n"
        answers = {
            b"AUTH": "+OK\r\n",
            b"CLIENT": "+OK\r\n",
            b"CLUSTER": f"*1\r\n{node}",
            b"COMMAND": "*1\r\n*6\r\n$7\r\nevalsha\r\n:-3\r\n*0\r\n:0\r\n:0\r\n:0\r\n",
        }
        with contextlib.suppress(ConnectionError):
            while header := self.rfile.readline():
                words = [self._word() for _ in range(int(header[1:]))]
                moved = f"-MOVED 1 {host}:{port}\r\n"
                self.wfile.write(answers.get(words[0].upper(), moved).encode())

    def _word(self) -> bytes:
        length = int(self.rfile.readline()[1:])
        return self.rfile.read(length + 2)[:-2]


@dataclass
class Servers:
    """What there is to fail at."""

    guarded: RedisServer
    """Knows a user with a few rights."""
    silent: TcpProxy
    encrypted: RedisServer
    sentinels: SentinelSet
    lonely: RedisServer
    """A node of a Cluster that nobody has set up."""
    wayward: WaywardServer
    files: TlsFiles


@contextlib.contextmanager
def servers_with_secrets(files: TlsFiles) -> Iterator[Servers]:
    """Start all of them."""
    options = [*files.server_options(), "--requirepass", RIGHT]
    with (
        RedisServer("--requirepass", RIGHT) as guarded,
        TcpProxy(guarded.port) as silent,
        RedisServer(*options, binary=require_redis(), tls=True) as encrypted,
        SentinelSet(password=RIGHT, sentinel_password=MARKERS["sentinel"]) as sentinels,
        RedisServer("--cluster-enabled", "yes", "--cluster-port", str(free_ports(1)[0])) as lonely,
        WaywardServer() as wayward,
    ):
        silent.black_hole()
        rules = ("on", f">{OTHER_SECRET}", "~lock:*", "+eval", "+evalsha")
        command(guarded, "ACL", "SETUSER", USER, *rules, password=RIGHT)
        yield Servers(guarded, silent, encrypted, sentinels, lonely, wayward, files)


def _url(port: int, *, user: str = "", password: str = SECRET, more: str = "", scheme: str = "redis") -> Any:
    return {"url": f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{HOST}:{port}{more}"}


def _tls(on: Servers, **changes: Any) -> dict[str, Any]:
    return {**_url(on.encrypted.port, scheme="rediss"), "redis_tls_ca_file": on.files.ca, **changes}


def _sentinel(on: Servers, **changes: Any) -> dict[str, Any]:
    login = {"redis_password": SECRET, "redis_username": USER}
    return {"redis_sentinel_hosts": on.sentinels.sentinel_hosts, **login, **changes}


FAILING: dict[str, Callable[[Servers], dict[str, Any]]] = {
    "wrong password in the URL": lambda on: _url(on.guarded.port),
    "wrong user in the URL": lambda on: _url(on.guarded.port, user=USER),
    "password in the query": lambda on: {"url": f"{on.guarded.url}?password={quote(SECRET, safe='')}"},
    "wrong password on its own": lambda on: {"url": on.guarded.url, "redis_password": SECRET},
    "two passwords": lambda on: {**_url(on.guarded.port), "redis_password": OTHER_SECRET},
    "host and port": lambda on: {
        "redis_host": HOST,
        "redis_port": on.guarded.port,
        "redis_username": USER,
        "redis_password": SECRET,
    },
    "no right": lambda on: _url(on.guarded.port, user=USER, password=OTHER_SECRET),
    "nonsense in the URL": lambda on: _url(on.guarded.port, user=USER, more="?tiemout=1"),
    "a value that does not fit in the URL": lambda on: _url(
        on.guarded.port, user=USER, more="?socket_timeout=x"
    ),
    "nobody listens": lambda _: _url(free_ports(1)[0], user=USER),
    "unknown host": lambda _: {"url": f"redis://{USER}:{MARKERS['pass']}@nowhere.invalid:6379"},
    "silence": lambda on: _url(on.silent.port, user=USER),
    "no TLS at a TLS server": lambda on: _url(on.encrypted.port, user=USER),
    "TLS at a plain server": lambda on: {**_url(on.guarded.port, user=USER), "redis_tls": True},
    "wrong authority": lambda on: _tls(on, redis_tls_ca_file=on.files.other_ca),
    "no client certificate": _tls,
    "wrong password over TLS": lambda on: _tls(
        on, redis_tls_cert_file=on.files.client_cert, redis_tls_key_file=on.files.client_key
    ),
    "wrong Sentinel password": lambda on: _sentinel(
        on, redis_sentinel_username=SENTINEL_USER, redis_sentinel_password=SENTINEL_SECRET
    ),
    "right Sentinel password": lambda on: _sentinel(on, redis_sentinel_password=MARKERS["sentinel"]),
    "TLS at plain Sentinels": lambda on: _sentinel(
        on, redis_tls=True, redis_sentinel_password=SENTINEL_SECRET
    ),
    "no Sentinel": lambda on: _sentinel(
        on,
        redis_sentinel_hosts=f"{HOST}:{free_ports(1)[0]}",
        redis_sentinel_username=SENTINEL_USER,
        redis_sentinel_password=SENTINEL_SECRET,
    ),
    "no Cluster": lambda on: {
        **_url(on.guarded.port, user=USER, password=OTHER_SECRET),
        "redis_cluster": True,
    },
    "Cluster out of reach": lambda _: {**_url(free_ports(1)[0], user=USER), "redis_cluster": True},
    "Cluster without slots": lambda on: {"url": on.lonely.url, "redis_cluster": True},
    "sent to and fro in a Cluster": lambda on: {**_url(on.wayward.port, user=USER), "redis_cluster": True},
    "a Cluster taken for one server": lambda on: _url(on.wayward.port, user=USER),
}
"""Settings that cannot work, by what is wrong with them."""
REFUSED_URL = ("nonsense in the URL", "a value that does not fit in the URL")
"""Those that fail before anything is connected."""
