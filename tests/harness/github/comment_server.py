"""A local server for GitHub's API of comments and pull requests, with pages, errors, delays and invalid responses."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

BOT = {"login": "github-actions[bot]", "type": "Bot"}


@dataclass
class Server:
    """Stored data, and the requests received; `refuse` may replace a response."""

    address: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    pulls: list[dict[str, Any]] = field(default_factory=list)
    login: str = ""  # login of the token's user; "" for an app's token
    asked: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    refuse: Callable[[str, str], tuple[int, Any] | tuple[int, Any, dict[str, str]] | None] = lambda *_: None

    def add(self, body: str, user: dict[str, str] = BOT) -> dict[str, Any]:
        """Add an existing comment."""
        self.comments.append({"id": len(self.comments) + 1, "body": body, "user": user})
        return self.comments[-1]

    @property
    def changes(self) -> list[str]:
        """Return the requests that modify data."""
        return [each for each in self.asked if not each.startswith("GET ")]

    def answer(self, method: str, target: str, content: Any) -> tuple[int, Any]:
        """Respond as specified in GitHub's API documentation."""
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        match method, path.split("/")[4:]:
            case "GET", ["issues", "7", "comments"]:
                size, page = int(query["per_page"][0]), int(query["page"][0])
                return 200, self.comments[(page - 1) * size : page * size]
            case "POST", ["issues", "7", "comments"]:
                return 201, self.add(content["body"])
            case "PATCH", ["issues", "comments", number]:
                self.comments[int(number) - 1]["body"] = content["body"]
                return 200, self.comments[int(number) - 1]
            case "GET", ["pulls"]:
                head = query["head"][0]
                return 200, [pull_request for pull_request in self.pulls if pull_request["head"]["label"] == head]
        if (method, path) == ("GET", "/user") and self.login:
            return 200, {"login": self.login, "type": "User"}
        return 404, {"message": "Not Found"}


AnyServer = TypeVar("AnyServer", bound=Server)


@contextmanager
def running(server: AnyServer) -> Iterator[AnyServer]:
    """Run a server for the duration of the block."""

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            content = json.loads(self.rfile.read(length)) if length else None
            server.asked.append(f"{self.command} {urlsplit(self.path).path}")
            server.tokens.add(self.headers.get("Authorization", ""))
            status, said, *headers = server.refuse(self.command, self.path) or server.answer(
                self.command, self.path, content
            )
            data = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **(headers[0] if headers else {})}.items():
                self.send_header(name, value)
            self.end_headers()
            _write(self, data)

        do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Suppress the request log."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.address = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def serving() -> AbstractContextManager[Server]:
    """Run a server without data for the duration of the block."""
    return running(Server())


SLOW = b"a drop at a time"


def _write(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    step = 1 if data == SLOW else max(1, len(data))
    try:
        for start in range(0, len(data), step):
            handler.wfile.write(data[start : start + step])
            handler.wfile.flush()
            time.sleep(0.2 if data == SLOW else 0)
    except OSError:
        return
