"""Compare the current policy with the policy at a git revision."""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from onnxgate.core.errors import LockError
from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.text import join_phrases
from onnxgate.evidence.policy import PolicyChange
from onnxgate.gate.policy.config_changes import LEVELS, PolicyReporter, find_config_changes, find_new_ignores
from onnxgate.gate.policy.lock_changes import LockReporter, find_lock_changes
from onnxgate.gate.policy.model_changes import (
    MAX_NAMED_MODELS,
    find_dropped_models,
    find_selection_changes,
    find_setting_changes,
)
from onnxgate.gate.request import Checkout
from onnxgate.project.config.loader import CONFIG_NAME, PYPROJECT, find_config, has_table, parse_config
from onnxgate.project.config.project import LOCK_NAME, Project, list_models, selects
from onnxgate.project.config.schema import Config
from onnxgate.project.git.revisions import (
    FILE_MODES,
    MissingAtRevisionError,
    Revision,
    Tree,
    find_added,
    find_exact_renames,
    find_similar,
)
from onnxgate.project.lock.lock_file import parse_lock
from onnxgate.project.lock.types import Lock
from onnxgate.project.toml import find_key_lines

CONFIG_NAMES = (CONFIG_NAME, PYPROJECT)


class PolicyComparison(msgspec.Struct, frozen=True):
    """Result of comparing the current policy with the policy at the baseline."""

    changes: tuple[PolicyChange, ...] = ()
    levels: Mapping[str, str] = msgspec.field(default_factory=dict)  # `[rules]` of the baseline, which sets the level
    new_ignores: frozenset[int] = frozenset()  # indexes of `[[ignore]]` entries that accept more than at the baseline
    remarks: tuple[str, ...] = ()
    undone: tuple[IncompleteCheck, ...] = ()


class BasePolicy(msgspec.Struct, frozen=True):
    """Config and lock at the baseline. Paths in it are relative to `folder`, which is relative to git's root."""

    tree: Tree
    folder: str  # "" for the root
    config: Config
    lock: Lock | None

    def models(self) -> dict[str, str]:
        """Return the files that the config selects: path relative to git's root, and path relative to the config."""
        names = {path: posixpath.relpath(path, self.folder or ".") for path in self.tree.entries}
        files = (path for path, entry in self.tree.entries.items() if entry.mode in FILE_MODES)
        return {path: names[path] for path in files if selects(self.config, names[path])}


def compare_policies(checkout: Checkout, revision: Revision) -> PolicyComparison:
    """Compare the config and the lock with those at a revision, and find models that are no longer checked."""
    try:
        return _compare(checkout, Tree(revision))
    except MissingAtRevisionError as error:
        reason = f"the policy could not be compared with `{revision.name}`: {error.reason}"
        return PolicyComparison(undone=(IncompleteCheck(Stage.LOCK, "", "", reason, error.hint),))


def _compare(checkout: Checkout, tree: Tree) -> PolicyComparison:
    project, name = checkout.project, tree.revision.name
    folder = _relative_folder(project.folder, tree)
    path = _find_base_config(project, tree, folder)
    if not path:
        remarks: tuple[str, ...] = (f"the policy was not compared: there is no config at `{name}`",)
        return _find_hidden_projects(project, tree, folder, remarks)
    text = tree.text(path)
    config = parse_config(text, posixpath.basename(path)) if text is not None else None
    if config is None:
        return PolicyComparison(remarks=(f"the policy was not compared: `{path}` at `{name}` is not valid",))
    base_folder = posixpath.dirname(tree.followed(path))
    folder = _relative_folder(Path(os.path.realpath(project.folder)), tree)
    lock, remarks = _load_base_lock(tree, posixpath.join(base_folder, LOCK_NAME))
    base = BasePolicy(tree, base_folder, config, lock)
    models = {posixpath.normpath(posixpath.join(folder, model.path)): model.path for model in project.models()}
    selected = base.models()
    renamed = _find_renames(base, selected)
    pairs = _match_models(base, models, selected, renamed)
    changes = (
        *find_config_changes(PolicyReporter(project), config, pairs),
        *_find_model_changes(project, base, folder, models, selected, renamed),
        *find_setting_changes(PolicyReporter(project), config, pairs, checkout.lock),
        *_find_lock_changes(checkout, base, pairs),
    )
    new_ignores = frozenset(find_new_ignores(config.ignore, project.config.ignore, pairs))
    return PolicyComparison(changes, config.rules, new_ignores, remarks)


def _find_hidden_projects(project: Project, tree: Tree, folder: str, remarks: tuple[str, ...]) -> PolicyComparison:
    """Find the projects of the baseline that are no longer found, because there is a new config in a folder above."""
    report, changes = PolicyReporter(project), []
    levels: Mapping[str, str] = {}
    above = [posixpath.join(parent, name) for parent in _list_parents(folder) for name in CONFIG_NAMES]
    if any(tree.file(path) and _has_config(tree, path) for path in above):
        return PolicyComparison(remarks=remarks)
    for path in sorted(tree.entries):
        name = posixpath.relpath(path, folder or ".")
        if posixpath.basename(path) not in CONFIG_NAMES or name.startswith(".") or "/." in name:
            continue
        config = parse_config(tree.text(path) or "", posixpath.basename(path)) if _has_config(tree, path) else None
        models = BasePolicy(tree, posixpath.dirname(path), config, None).models() if config is not None else ()
        names = [posixpath.relpath(model, folder or ".") for model in models]
        lost = [it for it in names if not selects(project.config, it) and os.path.lexists(project.folder / it)]
        if config is not None and lost:
            shown = join_phrases([f"`{model}`" for model in lost], MAX_NAMED_MODELS)
            message = f"`{name}` is not used by checks in this folder, which now has a config; it selects {shown}"
            fix = f"check it with `--config {shlex.quote(name)}`, or move the new config to a folder of its own"
            changes.append(report.weaker(f"project {name}", message, fix=fix))
            levels = max(levels, config.rules, key=lambda rules: LEVELS.index(rules.get("policy-weakened", "warning")))
    return PolicyComparison(tuple(changes), levels, remarks=remarks)


def _list_parents(folder: str) -> list[str]:
    parts = folder.split("/") if folder else []
    return ["/".join(parts[:length]) for length in range(len(parts))]


def _relative_folder(folder: Path, tree: Tree) -> str:
    """Return the path of a folder relative to git's root; "" for the root."""
    root = tree.revision.root
    base = root if folder.is_relative_to(root) else Path(os.path.realpath(root))
    relative = folder.relative_to(base).as_posix()
    return "" if relative == "." else relative


def _find_base_config(project: Project, tree: Tree, folder: str) -> str:
    """Return the path of the config at the baseline; "" if there was none.

    It is the config in the same folder that the same command uses, or the config that was moved to this folder.
    """
    is_default = find_config(project.folder) == project.path
    for name in CONFIG_NAMES if is_default else dict.fromkeys((project.path.name, *CONFIG_NAMES)):
        path = posixpath.join(folder, name)
        if tree.file(path) and _has_config(tree, path):
            return path
    root = tree.revision.root
    moved = [
        path
        for path in tree.entries
        if posixpath.basename(path) in CONFIG_NAMES
        and not _has_config_on_disk(root / posixpath.dirname(path))
        and _has_config(tree, path)
    ]
    if len(moved) <= 1:
        return moved[0] if moved else ""
    added = [path for path in find_added(tree) if posixpath.basename(path) in CONFIG_NAMES]
    return find_similar(tree, moved, added).get(posixpath.join(folder, project.path.name), ("", 0))[0]


def _has_config(tree: Tree, path: str) -> bool:
    return posixpath.basename(path) != PYPROJECT or has_table((tree.text(path) or "").encode())


def find_removed_configs(folder: Path, revision: Revision) -> dict[str, list[str]]:
    """Return the configs at a revision that no longer exist, and their models that are no longer checked.

    Configs in the folder, its parents and its subfolders are considered. A model that another config selects now is
    still checked, also if it was renamed. Paths are relative to git's root.
    """
    root, tree = revision.root, Tree(revision)
    start = os.path.realpath(folder)
    removed: dict[str, list[str]] = {}
    for path in tree.entries:
        parent = os.path.realpath(root / posixpath.dirname(path))
        if posixpath.basename(path) not in CONFIG_NAMES or os.path.commonpath((start, parent)) not in (start, parent):
            continue
        if not _has_config_on_disk(Path(parent)) and _has_config(tree, path):
            config = parse_config(tree.text(path) or "", posixpath.basename(path))
            base = BasePolicy(tree, posixpath.dirname(path), config, None) if config is not None else None
            models = _find_current_paths(base) if base is not None else []
            if unchecked := sorted(model for model in models if not _is_checked(root, root / model)):
                removed[path] = unchecked
    return removed


def _find_current_paths(base: BasePolicy) -> list[str]:
    """Return the paths that the models of the baseline have now; models that were removed keep their paths."""
    models = base.models()
    renamed = {old: new for new, old in _find_renames(base, models).items()}
    return [renamed.get(path, path) for path in models]


def _has_config_on_disk(folder: Path) -> bool:
    found = find_config(folder)
    return found is not None and found.parent == folder


def _is_checked(root: Path, model: Path) -> bool:
    """Return whether the nearest config selects a model; also if the file was removed."""
    config = find_config(model.parent)
    if not os.path.lexists(model):
        return True
    if config is None or any(part.startswith(".") for part in config.relative_to(root).parts[:-1]):
        return False  # a config in a hidden folder is only used if it is named
    parsed = parse_config(config.read_text(encoding="utf-8", errors="replace"), config.name)
    return parsed is not None and selects(parsed, model.relative_to(config.parent).as_posix())


def _load_base_lock(tree: Tree, path: str) -> tuple[Lock | None, tuple[str, ...]]:
    """Return the lock at the baseline, and a remark if it cannot be read."""
    text = tree.text(path)
    if text is None:
        return None, ()
    try:
        return parse_lock(text, path), ()
    except LockError as error:
        return None, (f"the lock was not compared with `{tree.revision.name}`: {error.message}",)


def _find_model_changes(
    project: Project,
    base: BasePolicy,
    folder: str,
    models: Mapping[str, str],
    selected: Mapping[str, str],
    renamed: Mapping[str, str],
) -> Iterator[PolicyChange]:
    """Yield the models that are no longer checked.

    `models` and `selected` map paths relative to git's root to names of models, now and at the baseline.
    """
    report, root = PolicyReporter(project), base.tree.revision.root
    dropped = _find_dropped(project, base, folder, selected, models)
    dropped |= {new for new in renamed if new not in models}
    if base.folder != folder:  # the config was moved, or replaced by several
        dropped = {path for path in dropped if not _is_checked(root, root / path)}
    shown = {posixpath.relpath(path, folder or "."): path for path in dropped}
    was = {name: selected[renamed[path]] for name, path in shown.items() if path in renamed}
    yield from find_dropped_models(report, base.config, shown, was)
    if not dropped:
        yield from find_selection_changes(report, base.config)


def _find_lock_changes(checkout: Checkout, base: BasePolicy, pairs: Mapping[str, str]) -> Iterator[PolicyChange]:
    if base.lock is not None:
        report = LockReporter(checkout.lock_name, find_key_lines(checkout.lock_text))
        configs = (base.config, checkout.project.config)
        yield from find_lock_changes(report, (base.lock, checkout.lock), configs, pairs)


def _find_renames(base: BasePolicy, selected: Collection[str]) -> dict[str, str]:
    """Map current paths to the paths of models at the baseline that were renamed, possibly with small edits."""
    tree = base.tree
    if not (missing := [path for path in selected if not os.path.lexists(tree.revision.root / path)]):
        return {}
    renamed = {new: old for new, old in find_exact_renames(tree).items() if old in selected}
    if removed := sorted(set(missing) - set(renamed.values())):
        suffixes = {posixpath.splitext(path)[1] for path in removed}
        added = [path for path in find_added(tree) if posixpath.splitext(path)[1] in suffixes and path not in renamed]
        renamed |= {new: old for new, (old, _) in find_similar(tree, removed, added).items()}
    return renamed


def _match_models(
    base: BasePolicy, models: Mapping[str, str], selected: Mapping[str, str], renamed: Mapping[str, str]
) -> dict[str, str]:
    """Map the names of current models to their names at the baseline; in a moved project, equal names match."""
    former = {name: renamed.get(at, at) for at, name in models.items()}
    for name, path in former.items():
        former[name] = path if path in selected else posixpath.join(base.folder, name)
    return {name: selected[path] for name, path in former.items() if path in selected}


def _find_dropped(
    project: Project, base: BasePolicy, folder: str, selected: Collection[str], models: Collection[str]
) -> set[str]:
    """Return the files that the config of the baseline selects or would select, but the current one does not."""
    root, after = base.tree.revision.root, project.config
    dropped = {path for path in selected if path not in models and os.path.lexists(root / path)}
    if base.folder == folder and (base.config.models, base.config.exclude) != (after.models, after.exclude):
        former = list_models(Project(project.path, project.folder, project.root, base.config, {}))
        dropped |= {posixpath.normpath(posixpath.join(folder, path)) for path in former} - set(models)
    return dropped
