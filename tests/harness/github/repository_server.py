"""A local server for GitHub's API of git objects, branches and pull requests, on a real git repository."""

from __future__ import annotations

import base64
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.harness.github.comment_server import BOT, Server
from tests.harness.repositories.checkout import NOBODY, git

MISSING = (404, {"message": "Not Found"})
NAME = "team/models"


@dataclass
class RepositoryServer(Server):
    """The repository `team/models`; `folder` is its git repository."""

    folder: Path = field(default_factory=Path)

    def answer(self, method: str, target: str, content: Any) -> tuple[int, Any]:
        """Respond as specified in GitHub's API documentation."""
        path, query = unquote(urlsplit(target).path), parse_qs(urlsplit(target).query)
        prefix, _, rest = path.partition(f"/repos/{NAME}/")
        if prefix or not rest:
            return MISSING
        try:
            match method, rest.split("/"):
                case "GET", ["git", "ref", "heads", *name]:
                    return 200, self._reference("/".join(name))
                case "GET", ["git", "commits", sha]:
                    return 200, self._commit(sha)
                case "GET", ["contents", *file]:
                    entry = git(self.folder, "ls-tree", "--long", query["ref"][0], "/".join(file))
                    return (200, self._file(entry)) if entry else MISSING
                case "GET", ["git", "blobs", sha]:
                    return 200, {"encoding": "base64", "content": base64.encodebytes(self._blob(sha)).decode()}
                case "POST", ["git", "trees"]:
                    return 201, {"sha": self._make_tree(content["base_tree"], content["tree"])}
                case "POST", ["git", "commits"]:
                    return 201, {"sha": self._make_commit(content)}
                case "POST", ["git", "refs"]:
                    git(self.folder, "update-ref", content["ref"], content["sha"], "0" * 40)
                    return 201, self._reference(content["ref"].removeprefix("refs/heads/"))
                case "PATCH", ["git", "refs", "heads", *name]:
                    assert content["force"] is True
                    self._reference("/".join(name))
                    git(self.folder, "update-ref", f"refs/heads/{'/'.join(name)}", content["sha"])
                    return 200, self._reference("/".join(name))
                case "DELETE", ["git", "refs", "heads", *name]:
                    git(self.folder, "update-ref", "-d", f"refs/heads/{'/'.join(name)}")
                    return 204, b""
                case "GET", ["pulls"]:
                    head = query["head"][0]
                    assert query["state"] == ["all"]
                    return 200, [pull for pull in reversed(self.pulls) if pull["head"]["label"] == head]
                case "POST", ["pulls"]:
                    return self._open_pull(content)
                case "PATCH", ["pulls", number]:
                    self.pulls[int(number) - 1].update(content)
                    return 200, self.pulls[int(number) - 1]
        except subprocess.CalledProcessError:
            return MISSING
        return MISSING

    def tip(self, branch: str) -> str:
        """Return the commit at the tip of a branch; "" if the branch does not exist."""
        return git(self.folder, "for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")

    def merge(self, number: int) -> None:
        """Merge a pull request, as the button does. The repository must not have uncommitted changes."""
        pull = self.pulls[number - 1]
        git(self.folder, "switch", "--quiet", pull["base"]["ref"])
        git(self.folder, "merge", "--quiet", "--no-ff", "--no-edit", pull["head"]["ref"])
        pull.update(state="closed", merged_at="2026-11-28T20:00:00Z")

    def _reference(self, branch: str) -> dict[str, Any]:
        return {
            "ref": f"refs/heads/{branch}",
            "object": {"sha": git(self.folder, "rev-parse", "--verify", f"refs/heads/{branch}"), "type": "commit"},
        }

    def _commit(self, sha: str) -> dict[str, Any]:
        tree, parents, message = git(self.folder, "show", "--no-patch", "--format=%T%n%P%n%B", sha).split("\n", 2)
        return {"message": message, "tree": {"sha": tree}, "parents": [{"sha": parent} for parent in parents.split()]}

    def _file(self, entry: str) -> Any:
        _, kind, sha, name = entry.split(None, 3)
        if kind == "tree":
            return []
        return {"type": "file", "sha": sha, "size": int(name.split()[0])}

    def _blob(self, sha: str) -> bytes:
        command = ["git", "-C", str(self.folder), "cat-file", "blob", sha]
        return subprocess.run(command, check=True, capture_output=True).stdout

    def _make_tree(self, base: str, entries: list[dict[str, str]]) -> str:
        index = {**os.environ, **NOBODY, "GIT_INDEX_FILE": str(self.folder / ".git" / "index-of-server")}

        def run(*arguments: str, text: str = "") -> str:
            command = ["git", "-C", str(self.folder), *arguments]
            done = subprocess.run(command, check=True, capture_output=True, input=text.encode(), env=index)
            return done.stdout.decode().strip()

        run("read-tree", f"{base}^{{tree}}")
        for entry in entries:
            sha = run("hash-object", "-w", "--stdin", text=entry["content"])
            run("update-index", "--add", "--cacheinfo", f"{entry['mode']},{sha},{entry['path']}")
        return run("write-tree")

    def _make_commit(self, content: dict[str, Any]) -> str:
        parents = [word for parent in content["parents"] for word in ("-p", parent)]
        return git(self.folder, "commit-tree", content["tree"], *parents, "-m", content["message"])

    def _open_pull(self, content: dict[str, Any]) -> tuple[int, Any]:
        head, base = content["head"], content["base"]
        taken = [pull for pull in self.pulls if pull["state"] == "open" and pull["head"]["ref"] == head]
        if taken or self.tip(head) == self.tip(base):
            return 422, {"message": "Validation Failed"}
        self.pulls.append(
            {
                "number": len(self.pulls) + 1,
                "state": "open",
                "merged_at": None,
                "title": content["title"],
                "body": content["body"],
                "user": BOT,
                "head": {"ref": head, "label": f"team:{head}", "repo": {"full_name": NAME}},
                "base": {"ref": base, "repo": {"full_name": NAME}},
            }
        )
        return 201, self.pulls[-1]
