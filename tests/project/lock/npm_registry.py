"""A local npm registry for the real npm."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

ENGINE, COMPANION = "onnxruntime-web", "onnxruntime-common"


def integrity(name: str, version: str) -> str:
    """Return the integrity of a package whose content is never downloaded."""
    return "sha512-" + base64.b64encode(hashlib.sha512(f"{name} {version}".encode()).digest()).decode()


class Registry:
    """Published packages; `asked` counts the requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked = 0
        self._packages: dict[str, dict[str, object]] = {}

    def add(self, name: str, version: str, needs: Mapping[str, str] | None = None, *, hashed: bool = True) -> None:
        """Publish a release; with `hashed=False` it has only a SHA-1 digest, as old releases do."""
        actual = {"integrity": integrity(name, version)} if hashed else {"shasum": "0" * 40}
        dist = {"tarball": f"{self.url}/{name}/-/{name}-{version}.tgz", **actual}
        release = {"name": name, "version": version, "dependencies": dict(needs or {}), "dist": dist}
        self._packages.setdefault(name, {})[version] = release

    def engine(self, *versions: str) -> None:
        """Publish releases of ONNX Runtime Web with its companion and an unrelated dependency."""
        self.add("long", "5.3.2")
        for version in versions:
            self.add(COMPANION, version)
            self.add(ENGINE, version, {COMPANION: version, "long": "^5.2.3"})

    def document(self, name: str) -> dict[str, object] | None:
        """Return the metadata of a package, or None if it is unknown."""
        self.asked += 1
        versions = self._packages.get(name)
        if versions is None:
            return None
        return {"name": name, "dist-tags": {"latest": list(versions)[-1]}, "versions": versions}


@contextmanager
def serve() -> Iterator[Registry]:
    """Serve a registry on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    registry = Registry(f"http://127.0.0.1:{server.server_address[1]}")
    server.registry = registry  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()


def use_registry(monkeypatch: pytest.MonkeyPatch, url: str, cache: Path) -> None:
    """Configure npm to use only this registry."""
    for name in (
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "npm_config_proxy",
        "npm_config_https_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("npm_config_registry", url)
    monkeypatch.setenv("npm_config_cache", str(cache))
    monkeypatch.setenv("npm_config_userconfig", str(cache.parent / "no-npmrc"))
    monkeypatch.setenv("npm_config_fetch_retries", "0")


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Return the metadata of a package."""
        document = self.server.registry.document(unquote(self.path).strip("/"))  # type: ignore[attr-defined]
        body = json.dumps(document or {"error": "not found"}).encode()
        self.send_response(200 if document else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Suppress the request log."""
