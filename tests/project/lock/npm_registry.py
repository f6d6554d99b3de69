"""A local npm registry for the real npm."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
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
    return _integrity_of(f"{name} {version}".encode())


def _integrity_of(content: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


class Registry:
    """Published packages; `asked` counts the requests for metadata, and `names` are those of the packages."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked = 0
        self.names: set[str] = set()
        self._packages: dict[str, dict[str, object]] = {}
        self._archives: dict[str, bytes] = {}

    def add(self, name: str, version: str, needs: Mapping[str, str] | None = None, *, hashed: bool = True) -> None:
        """Publish a release; with `hashed=False` it has only a SHA-1 digest, as old releases do."""
        actual = {"integrity": integrity(name, version)} if hashed else {"shasum": "0" * 40}
        dist = {"tarball": f"{self.url}/{name}/-/{name}-{version}.tgz", **actual}
        release = {"name": name, "version": version, "dependencies": dict(needs or {}), "dist": dist}
        self._packages.setdefault(name, {})[version] = release

    def publish(self, name: str, version: str, files: Mapping[str, bytes]) -> str:
        """Publish a release that can be installed, with exactly these files. Return its integrity."""
        with io.BytesIO() as packed:
            with tarfile.open(fileobj=packed, mode="w:gz") as archive:
                for path, data in files.items():
                    entry = tarfile.TarInfo(f"package/{path}")
                    entry.size, entry.mode = len(data), 0o755
                    archive.addfile(entry, io.BytesIO(data))
            content = packed.getvalue()
        place = f"{name}/-/{name}-{version}.tgz"
        dist = {"tarball": f"{self.url}/{place}", "integrity": _integrity_of(content)}
        manifest = json.loads(files["package.json"])
        self._packages.setdefault(name, {})[version] = {**manifest, "dist": dist, "hasInstallScript": True}
        self._archives[place] = content
        return dist["integrity"]

    def archive(self, path: str) -> bytes | None:
        """Return the archive of a release, or None if the path belongs to none."""
        return self._archives.get(path)

    def engine(self, *versions: str) -> None:
        """Publish releases of ONNX Runtime Web with its companion and an unrelated dependency."""
        self.add("long", "5.3.2")
        for version in versions:
            self.add(COMPANION, version)
            self.add(ENGINE, version, {COMPANION: version, "long": "^5.2.3"})

    def document(self, name: str) -> dict[str, object] | None:
        """Return the metadata of a package, or None if it is unknown."""
        self.asked += 1
        self.names.add(name)
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
        """Return the metadata or the archive of a package."""
        registry, path = self.server.registry, unquote(self.path).strip("/")  # type: ignore[attr-defined]
        archive = registry.archive(path)
        document = None if archive else registry.document(path)
        body = archive or json.dumps(document or {"error": "not found"}).encode()
        self.send_response(200 if archive or document else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Suppress the request log."""
