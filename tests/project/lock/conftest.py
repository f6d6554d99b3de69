"""A local package index, served over HTTP to the real uv."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import threading
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

LINUX = "manylinux_2_28_x86_64"


@dataclass
class LocalIndex:
    """Files by package; each file is a wheel without code."""

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    asked: int = 0

    def add(
        self,
        package: str,
        version: str,
        pythons: Iterable[str],
        platforms: Iterable[str] = (LINUX,),
        requires: Iterable[str] = (),
    ) -> None:
        """Publish one release with a wheel for each Python version and platform."""
        for python in pythons:
            for platform in platforms:
                tag = f"cp{python.replace('.', '')}"
                file = f"{package.replace('-', '_')}-{version}-{tag}-{tag}-{platform}.whl"
                self.files.setdefault(package, {})[file] = _wheel(package, version, file, requires)

    def sha256(self, package: str, file: str) -> str:
        """Return the digest of a published file."""
        return hashlib.sha256(self.files[package][file]).hexdigest()

    def page(self, package: str) -> bytes:
        """Return the package's page of the simple index."""
        links = (
            f'<a href="/files/{package}/{file}#sha256={self.sha256(package, file)}">{html.escape(file)}</a>'
            for file in self.files[package]
        )
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()


def _wheel(package: str, version: str, file: str, requires: Iterable[str]) -> bytes:
    info = f"{package.replace('-', '_')}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {require}\n" for require in requires)
    tag = "-".join(file.removesuffix(".whl").split("-")[2:])
    contents = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n",
    }
    digest = {name: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()) for name, text in contents.items()}
    record = [f"{name},sha256={digest[name].decode().rstrip('=')},{len(text)}" for name, text in contents.items()]
    contents[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as wheel:
        for name, text in contents.items():
            wheel.writestr(zipfile.ZipInfo(name), text)
    return data.getvalue()


@pytest.fixture
def local_index(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalIndex]:
    """Serve an index that replaces the user's index in uv, with its own cache."""
    index = LocalIndex()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            index.asked += 1
            kind, _, rest = self.path.strip("/").partition("/")
            package, _, file = rest.partition("/")
            known = index.files.get(package)
            if known is None or (kind == "files" and file not in known):
                self.send_error(404)
                return
            data = known[file] if kind == "files" else index.page(package)
            self.send_response(200)
            self.send_header("Content-Type", "application/zip" if kind == "files" else "text/html")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Suppress the request log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    use_index(monkeypatch, f"http://127.0.0.1:{server.server_port}/simple", tmp_path_factory.mktemp("uv-cache"))
    yield index
    server.shutdown()
    thread.join()
    server.server_close()


def use_index(monkeypatch: pytest.MonkeyPatch, url: str, cache: Path) -> None:
    """Configure uv to use only this index."""
    for name in ("UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_CONFIG_FILE", "UV_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_DEFAULT_INDEX", url)
    monkeypatch.setenv("UV_CACHE_DIR", str(cache))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
