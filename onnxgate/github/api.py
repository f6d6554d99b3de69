"""Client for GitHub's REST API.

Time and response size are limited, and the token is sent to one host only.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

REQUEST_TIMEOUT_S = 15.0
TOTAL_TIMEOUT_S = 60.0
MAX_ATTEMPTS = 3
RETRY_PAUSE_S = 2.0
MAX_ANSWER_BYTES = 32 * 2**20
API_VERSION = "2022-11-28"
PAGE_SIZE = 100
"""Maximum number of items in one response of a list."""
Value = TypeVar("Value")


class ApiError(Exception):
    """Raised if a request to GitHub fails. `status` is 0 if there was no response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Handler that rejects redirects, because the token must not be sent to another host."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Return None, which makes the redirect fail."""
        return


class Api:
    """Client for one API with one token. All requests together must finish within TOTAL_TIMEOUT_S."""

    def __init__(self, base: str, token: str) -> None:
        if not base.startswith(("https://", "http://")):
            raise ApiError(0, f"the API address `{base}` is not an HTTP URL")
        self._base = base.rstrip("/")
        self._token = token
        self._end = time.monotonic() + TOTAL_TIMEOUT_S
        self._opener = urllib.request.build_opener(_NoRedirects)

    def get(self, path: str, **query: str | int) -> Any:
        """Send a GET request; retry it on server errors.

        Raises:
            ApiError: the last attempt failed.
        """
        where = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        for attempt in range(1, MAX_ATTEMPTS):
            try:
                return self.send("GET", where)
            except ApiError as error:
                pause_s = RETRY_PAUSE_S * attempt
                if 0 < error.status < 500 or pause_s > self._end - time.monotonic():
                    raise
                time.sleep(pause_s)
        return self.send("GET", where)

    def send(self, method: str, path: str, content: object = None) -> Any:
        """Send a request without retries, since it may have had an effect even if the server did not respond.

        Return the decoded response; None if it is empty.

        Raises:
            ApiError: the request failed, or its result is unknown.
        """
        data = json.dumps(content).encode("ascii") if content is not None else None
        request = urllib.request.Request(f"{self._base}{path}", data, method=method)
        request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        request.add_header("Accept", "application/vnd.github+json")
        request.add_header("X-GitHub-Api-Version", API_VERSION)
        request.add_header("User-Agent", "onnxgate")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=self._remaining_s()) as answer:
                received = self._read(answer)
        except urllib.error.HTTPError as error:
            raise self._refused(error) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise ApiError(0, f"no response from GitHub: {reason}") from error
        if not received:
            return None
        try:
            return json.loads(received)
        except (ValueError, RecursionError) as error:
            raise ApiError(0, "the response from GitHub is not valid JSON") from error

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        """Read the body of a response within the limits of time and size."""
        content = bytearray()
        while chunk := answer.read1(2**16):
            content += chunk
            if len(content) > MAX_ANSWER_BYTES:
                raise ApiError(0, f"the response from GitHub is larger than {MAX_ANSWER_BYTES // 2**20} MiB")
            self._remaining_s()
        return bytes(content)

    def _refused(self, error: urllib.error.HTTPError) -> ApiError:
        try:
            message = json.loads(error.read(2**16)).get("message")
        except (OSError, ValueError, AttributeError, RecursionError, http.client.HTTPException):
            message = None
        words = message if isinstance(message, str) and message else error.reason
        limited = error.headers.get("x-ratelimit-remaining") == "0" or "retry-after" in error.headers
        kind = "rate limit exceeded: " if limited or error.code == 429 else ""
        return ApiError(429 if kind else error.code, f"{kind}{error.code} {str(words)[:200]}")

    def _remaining_s(self) -> float:
        remaining_s = self._end - time.monotonic()
        if remaining_s <= 0:
            raise ApiError(0, "the request to GitHub timed out")
        return min(remaining_s, REQUEST_TIMEOUT_S)


def decode_answer(answer: object, type_: type[Value]) -> Value:
    """Decode a response of the GitHub API.

    Raises:
        ApiError: the response does not have the documented form.
    """
    try:
        return msgspec.convert(answer, type=type_)
    except msgspec.ValidationError as error:
        raise ApiError(0, f"unexpected response from GitHub: {error}") from error


MAX_EVENT_BYTES = 32 * 2**20


class Repository(msgspec.Struct, frozen=True):
    """A GitHub repository; the name is `owner/name`."""

    full_name: str = ""


class Branch(msgspec.Struct, frozen=True):
    """Head or base branch of a pull request. `repo` is None if the fork was deleted."""

    sha: str = ""
    ref: str = ""  # name of the branch
    repo: Repository | None = None


class PullRequest(msgspec.Struct, frozen=True):
    """A pull request, as in events and API responses of GitHub."""

    number: int
    head: Branch = Branch()
    base: Branch = Branch()
    state: str = ""  # "open" or "closed"
    merged_at: str | None = None
    body: str | None = None

    @property
    def is_from_fork(self) -> bool:
        """Whether the branch of the pull request is in another repository."""
        return self.head.repo is None or self.base.repo is None or self.head.repo.full_name != self.base.repo.full_name


class WorkflowRun(msgspec.Struct, frozen=True):
    """The workflow run that triggered the current run."""

    event: str = ""
    head_sha: str = ""
    head_branch: str | None = None
    head_repository: Repository | None = None
    conclusion: str | None = None
    html_url: str = ""


class Event(msgspec.Struct, frozen=True):
    """The event that triggered this run."""

    pull_request: PullRequest | None = None
    workflow_run: WorkflowRun | None = None


def read_event(environment: Mapping[str, str]) -> Event:
    """Return the event that triggered this run, or an empty event if it cannot be read."""
    try:
        with Path(environment["GITHUB_EVENT_PATH"]).open("rb") as file:
            return msgspec.json.decode(file.read(MAX_EVENT_BYTES), type=Event)
    except (KeyError, OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return Event()
