"""Package indexes that are unreachable, hang, or return something other than packages."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from campaigns.faults.invariants import FaultOutcome
from campaigns.faults.project_under_test import Ground
from campaigns.faults.registry import fault
from tests.harness.repositories.user_repository import INDEX_VARIABLES

PAGE = b"<!DOCTYPE html><html><body><h1>Sign in</h1></body></html>"


class _Answers(http.server.BaseHTTPRequestHandler):
    """Sends the same response to every request."""

    status = 200
    kind = "text/html"
    body = PAGE
    short = False  # send fewer bytes than announced

    def do_GET(self) -> None:
        """Send the response."""
        self.send_response(self.status)
        self.send_header("Content-Type", self.kind)
        self.send_header("Content-Length", str(len(self.body) * (3 if self.short else 1)))
        self.end_headers()
        with contextlib.suppress(OSError):  # the client may have disconnected
            self.wfile.write(self.body)

    do_HEAD = do_GET  # noqa: N815 - name required by `http.server`

    def log_message(self, *_: object) -> None:
        """Suppress log output."""


@contextlib.contextmanager
def answering(**traits: object) -> Iterator[str]:
    """Yield the address of an index that sends this response."""
    handler = type("Handler", (_Answers,), traits)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """Yield the address of a server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def cold(ground: Ground, index: str, **more: str | Path | None) -> dict[str, str | Path | None]:
    """Return environment variables that set empty caches and only this index."""
    caches = {"UV_CACHE_DIR": ground.folder / "uv cache", "ONNXGATE_CACHE_DIR": ground.folder / "cold cache"}
    own = {"UV_DEFAULT_INDEX": f"{index}/simple", "UV_NO_CONFIG": "1", "UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "2"}
    return {**dict.fromkeys(INDEX_VARIABLES), **caches, **own, **more}


def run_online_commands(ground: Ground, index: str, **more: str | Path | None) -> Iterator[FaultOutcome]:
    """Run a check that needs environments, and a lock that needs releases."""
    variables = cold(ground, index, **more)
    yield ground.check(expected=(3,), variables=variables, about="check")
    lock = ground.lock.read_text()
    ground.lock.unlink()
    yield ground.run("lock", expected=(3,), variables=variables, about="lock")
    assert not ground.lock.exists()
    ground.lock.write_text(lock)


@fault("package index", "the package index refuses the connection", quick=True)
def index_refuses(ground: Ground) -> Iterator[FaultOutcome]:
    """The port is closed."""
    yield from run_online_commands(ground, "http://127.0.0.1:9")


@fault("package index", "the host name of the package index is unknown")
def index_host_unknown(ground: Ground) -> Iterator[FaultOutcome]:
    """The host name cannot be resolved."""
    yield from run_online_commands(ground, "http://index.invalid")


@fault("package index", "the proxy is unreachable")
def index_proxy_unreachable(ground: Ground) -> Iterator[FaultOutcome]:
    """The proxy is unreachable, for example after a firewall change."""
    proxy = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    yield from run_online_commands(ground, "http://pypi.invalid", **proxy)


@fault("package index", "the package index does not respond")
def index_hangs(ground: Ground) -> Iterator[FaultOutcome]:
    """The request times out."""
    with silent() as index:
        yield from run_online_commands(ground, index)


@fault("package index", "the package index returns HTTP status 500")
def index_server_error(ground: Ground) -> Iterator[FaultOutcome]:
    """The error message names the index, not a requirement."""
    with answering(status=500, body=b"oops") as index:
        yield from run_online_commands(ground, index)


@fault("package index", "the package index returns HTTP status 401 or 403")
def index_unauthorized(ground: Ground) -> Iterator[FaultOutcome]:
    """The error message names the index, not a requirement."""
    for status in (401, 403):
        with answering(status=status, body=b"who are you") as index:
            yield from run_online_commands(ground, index)


@fault("package index", "the package index returns a login page")
def index_login_page(ground: Ground) -> Iterator[FaultOutcome]:
    """A captive portal answers every request with status 200 and HTML."""
    with answering() as index:
        yield from run_online_commands(ground, index)


@fault("package index", "the package index returns truncated responses")
def index_truncated_responses(ground: Ground) -> Iterator[FaultOutcome]:
    """Responses contain fewer bytes than their headers announce."""
    with answering(short=True) as index:
        yield from run_online_commands(ground, index)


def wheel_names(ground: Ground) -> Iterator[tuple[str, str]]:
    """Yield the package and the file name of each locked wheel."""
    from onnxgate.project.lock.lock_file import load_lock

    for package in load_lock(ground.lock).packages:
        for wheel in package.wheels:
            yield package.name, wheel.file


@contextlib.contextmanager
def serving(ground: Ground, content: bytes, *, short: bool = False) -> Iterator[str]:
    """Yield the address of an index that returns this content for every locked wheel."""
    pages: dict[str, str] = {}
    for package, file in wheel_names(ground):
        pages[package] = pages.get(package, "") + f'<a href="/files/{file}">{file}</a>\n'

    def get(handler: _Answers) -> None:
        name = handler.path.strip("/").split("/")[-1]
        is_wheel = name.endswith(".whl")
        handler.body = content if is_wheel else pages.get(name, "").encode()
        handler.short = short and is_wheel
        handler.status = 200 if handler.body else 404
        _Answers.do_GET(handler)

    with answering(do_GET=get) as index:
        yield index


@fault("package index", "downloaded wheels have a different hash", quick=True)
def index_wrong_hashes(ground: Ground) -> Iterator[FaultOutcome]:
    """Wheels that do not match the locked hashes are rejected."""
    with serving(ground, PAGE) as index:
        yield ground.check(expected=(3,), variables=cold(ground, index))


@fault("package index", "downloaded wheels are truncated")
def index_truncated_wheels(ground: Ground) -> Iterator[FaultOutcome]:
    """An interrupted download makes the runtimes unavailable."""
    with serving(ground, b"PK\x03\x04" + bytes(1000), short=True) as index:
        yield ground.check(expected=(3,), variables=cold(ground, index))


@fault("package index", "`--offline` is used with and without cached wheels")
def index_offline(ground: Ground) -> Iterator[FaultOutcome]:
    """Cached packages are used; missing packages are reported as an error."""
    yield ground.check("--offline", expected=(3,), variables=cold(ground, "http://127.0.0.1:9"), about="cold")
    variables = {**cold(ground, "http://127.0.0.1:9"), "ONNXGATE_CACHE_DIR": ground.cache}
    yield ground.check("--offline", expected=(0,), variables=variables, about="warm")
    ground.lock.unlink()
    yield ground.run("lock", "--offline", expected=(3,), variables=cold(ground, "http://127.0.0.1:9"), about="lock")
