"""One comment on a pull request that is found again by a hidden marker, and kept up to date."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from typing import Literal, TypeVar

import msgspec

from onnxgate.cli.github_api import Api, ApiError

LONGEST = 65_536
"""Characters of a comment. Source: actions/dependency-review-action, comment-pr.ts."""
PAGE = 100
MOST_PAGES = 30
BOT = "Bot"

Value = TypeVar("Value")

Done = Literal["created", "updated", "unchanged", "silent"]


class User(msgspec.Struct, frozen=True):
    """Who wrote a comment."""

    login: str = ""
    type: str = ""


class Comment(msgspec.Struct, frozen=True):
    """One comment as the API tells it."""

    id: int
    body: str | None = None
    user: User | None = None


def marker(*words: str) -> str:
    """What the comment of one workflow and job begins with; nothing in the words can end it."""
    quoted = (urllib.parse.quote(word, safe=" ./").replace("--", "-%2D") for word in words if word)
    return f"<!-- onnxgate:{':'.join(quoted)} -->"


def fitted(mark: str, body: str, instead: str) -> str:
    """The whole comment; `instead` stands for a body that is too long for one."""
    whole = f"{mark}\n{body}"
    return whole if len(whole) <= LONGEST else f"{mark}\n{instead}"


def stick(api: Api, repository: str, number: int, mark: str, body: str, *, silent: bool) -> Done:
    """Have one comment that says this; none where it is `silent` and there is none yet.

    Raises:
        ApiError: it is not known to be there.
    """
    comments = f"/repos/{repository}/issues"
    known = next(own(api, f"{comments}/{number}/comments", mark), None)
    if known is None:
        if silent:
            return "silent"
        api.send("POST", f"{comments}/{number}/comments", {"body": body})
        return "created"
    if _same(known.body or "", body):
        return "unchanged"
    api.send("PATCH", f"{comments}/comments/{known.id}", {"body": body})
    return "updated"


def _same(one: str, other: str) -> bool:
    return one.replace("\r\n", "\n").strip() == other.replace("\r\n", "\n").strip()


def own(api: Api, path: str, mark: str) -> Iterator[Comment]:
    """Our comments, oldest first. Anybody can write the marker, and a token may be able to change what others wrote."""
    me: str | None = None
    for comment in (each for each in listed(api, path) if (each.body or "").startswith(mark)):
        author = comment.user or User()
        if author.type == BOT:
            yield comment
            continue
        me = _login(api) if me is None else me
        if me and author.login == me:
            yield comment


def listed(api: Api, path: str) -> Iterator[Comment]:
    """All comments of a pull request, page by page."""
    for page in range(1, MOST_PAGES + 1):
        comments = typed(api.get(path, per_page=PAGE, page=page), list[Comment])
        yield from comments
        if len(comments) < PAGE:
            return


def _login(api: Api) -> str:
    """Whose token it is; "" of an app's, as the one of a workflow is."""
    try:
        return typed(api.get("/user"), User).login
    except ApiError:
        return ""


def typed(answer: object, type_: type[Value]) -> Value:
    """An answer of the shape that GitHub documents.

    Raises:
        ApiError: it is of another.
    """
    try:
        return msgspec.convert(answer, type=type_)
    except msgspec.ValidationError as error:
        raise ApiError(0, f"an answer that is none of GitHub's: {error}") from error
