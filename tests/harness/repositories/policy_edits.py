"""A committed project whose policy is edited: changes that weaken it, and honest ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import onnx

from onnxgate.evidence.policy import PolicyChange
from onnxgate.gate.policy.comparison import PolicyComparison, compare_policies
from onnxgate.gate.request import Checkout
from onnxgate.project.config.loader import load_config
from onnxgate.project.git.repository import find_git_root
from onnxgate.project.git.revisions import resolve_revision
from onnxgate.project.lock.comparison import target_policy, toolchain_policy
from onnxgate.project.lock.lock_file import parse_lock, render_lock
from onnxgate.project.lock.types import (
    Lock,
    LockedPackage,
    LockedRuntime,
    LockedTarget,
    LockedToolchain,
    MeasuredQuantization,
    MeasuredTolerance,
    Wheel,
)
from onnxgate.project.lock.update import lock_models
from tests.harness.models import parse, write
from tests.harness.repositories.checkout import commit, git

CONFIG = """\
models = ["models/*.onnx"]
ir-version = "<=10"
opset = { "ai.onnx" = 17 }

[targets.server]
runtime = "onnxruntime>=1.18,<1.32"

[targets.edge]
runtime = "onnxruntime>=1.20,<1.22"
optimization = ["all"]

[toolchain]
requires = ["torch==2.13.*"]

[limits]
time-s = 60

[rules]
size-grew = "error"

[[ignore]]
rule = "path-leaked"
reason = "known"
model = "models/a.onnx"
fingerprints = ["0123456789abcdef"]

[[model]]
path = "models/*.onnx"
sizes = { N = [1, 3] }
tolerance = { rtol = 1e-3, atol = 1e-4 }
budget = { size-mib = 10, slower-than-baseline = 1.2 }

[[model]]
path = "models/a.onnx"
source = "export.py:build"
inputs = "cases/*.npz"
opset = { "ai.onnx.ml" = 3 }
"""
RELEASES = {"server": ("1.18.1", "1.19.2", "1.20.1"), "edge": ("1.20.1", "1.21.1")}


def runtime(release: str, numpy: str = "1.26.4") -> LockedRuntime:
    """Return a locked release of ONNX Runtime."""
    packages = tuple(sorted((f"onnxruntime=={release}", f"numpy=={numpy}", "protobuf==5.29.5", "flatbuffers==25.2.10")))
    return LockedRuntime(engine="onnxruntime", release=release, python="3.11", packages=packages)


def locked_package(name: str, version: str) -> LockedPackage:
    """Return a package with one wheel."""
    file = f"{name}-{version}-py3-none-any.whl"
    return LockedPackage(name=name, version=version, python="3.11", wheels=(Wheel(file=file, sha256="0" * 64),))


def with_packages(lock: Lock) -> Lock:
    """Return the lock with an entry for each package that its runtimes pin."""
    pins = {pin for target in lock.targets.values() for runtime in target.runtimes for pin in runtime.packages}
    return msgspec.structs.replace(lock, packages=tuple(locked_package(*pin.split("==")) for pin in sorted(pins)))


class PolicyRepository:
    """A committed project with a config, a lock and two models, which are edited afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config_name = folder, "onnxgate.toml"
        for name in ("a", "b"):
            write(
                folder / f"models/{name}.onnx",
                parse(f"g (float[N, 4] x) => (float[N, 4] {name}) {{ {name} = Relu(x) }}"),
            )
        (folder / "export.py").write_text("def build(): ...\n")
        (folder / "cases").mkdir()
        (folder / "cases/one.npz").write_bytes(b"")
        (folder / "onnxgate.toml").write_text(CONFIG)
        self.lock = self._create_lock()
        self.write_lock(self.lock)
        git(folder, "init", "--quiet", "--initial-branch=main")
        commit(folder)

    def _create_lock(self) -> Lock:
        project = load_config(self.folder / "onnxgate.toml")
        entries = lock_models(project.models(), {}, {})
        measured = msgspec.structs.replace(
            entries["models/a.onnx"],
            tolerance={"a": MeasuredTolerance(noise=1e-6, bound=8e-6)},
            quantization={
                "a": MeasuredQuantization(
                    sqnr_db=40, cosine=0.999, top1=0.99, source="b.onnx", runtime="onnxruntime 1.20.1"
                )
            },
        )
        targets = {
            name: self.locked_target(project.config.targets[name], [runtime(release) for release in releases])
            for name, releases in RELEASES.items()
        }
        toolchain = LockedToolchain(
            policy=toolchain_policy(project.config.toolchain), python="3.11", packages={"torch": "2.13.0"}
        )
        return with_packages(Lock(targets=targets, toolchain=toolchain, models={**entries, "models/a.onnx": measured}))

    @staticmethod
    def locked_target(target: object, runtimes: list[LockedRuntime]) -> LockedTarget:
        """Return the entry of a target in the lock."""
        return LockedTarget(policy=target_policy(target), runtimes=tuple(runtimes))

    def edit(self, old: str, new: str) -> None:
        """Replace a text in the config that occurs exactly once."""
        path = self.folder / "onnxgate.toml"
        text = path.read_text()
        assert text.count(old) == 1, old
        path.write_text(text.replace(old, new))

    def write_lock(self, lock: Lock) -> None:
        """Write the lock."""
        (self.folder / "onnxgate.lock").write_text(render_lock(lock))

    def edit_target(self, name: str, *runtimes: LockedRuntime) -> None:
        """Replace the runtimes of a target in the lock."""
        target = self.lock.targets[name]
        changed = msgspec.structs.replace(target, runtimes=runtimes)
        self.write_lock(with_packages(msgspec.structs.replace(self.lock, targets={**self.lock.targets, name: changed})))

    def edit_model(self, path: str, **values: object) -> None:
        """Replace values of a model's entry in the lock."""
        entry = msgspec.structs.replace(self.lock.models[path], **values)
        self.write_lock(msgspec.structs.replace(self.lock, models={**self.lock.models, path: entry}))

    def compare(self) -> PolicyComparison:
        """Compare the current policy with the commit."""
        project = load_config(self.folder / self.config_name)
        text = project.lock_path.read_text()
        checkout = Checkout(project, parse_lock(text, "onnxgate.lock"), text, "onnxgate.lock", project.models())
        return compare_policies(checkout, resolve_revision(find_git_root(self.folder), "HEAD"))

    def changes(self) -> list[str]:
        """Return each change with its line and `-` if it weakens the policy, or `~`."""
        return [self.show(change) for change in self.compare().changes]

    def show(self, change: PolicyChange) -> str:
        """Return a change with the text of its line."""
        lines = (self.folder / change.place.path).read_text().splitlines()
        line = lines[change.place.line - 1].split(" = ")[0] if change.place.line else "-"
        return f"{'-' if change.is_weaker else '~'} {line}: {change.message}"


Edit = Callable[[PolicyRepository], None]


def replace(old: str, new: str) -> Edit:
    """Return an edit of the config."""
    return lambda repository: repository.edit(old, new)


def move_out(repository: PolicyRepository) -> None:
    """Rename a model to a folder that `models` does not match."""
    (repository.folder / "old").mkdir()
    git(repository.folder, "mv", "models/b.onnx", "old/b.onnx")


def edit_and_move_out(repository: PolicyRepository) -> None:
    """Rename a model to a folder that `models` does not match, with a small edit."""
    move_out(repository)
    model = onnx.load(repository.folder / "old/b.onnx")
    model.doc_string = "b"
    onnx.save(model, repository.folder / "old/b.onnx")
    git(repository.folder, "add", "old/b.onnx")


def change_target_without_row(repository: PolicyRepository) -> None:
    """Extend a target, and remove a release from the lock that it still requires."""
    repository.edit(">=1.18,<1.32", ">=1.18,<1.33")
    target = load_config(repository.folder / "onnxgate.toml").config.targets["server"]
    locked = repository.locked_target(target, [runtime("1.19.2"), runtime("1.20.1")])
    targets = {**repository.lock.targets, "server": locked}
    repository.write_lock(with_packages(msgspec.structs.replace(repository.lock, targets=targets)))


def tolerate_as_by_default(repository: PolicyRepository) -> None:
    """Replace the measured tolerance with the default, which is looser."""
    repository.edit(TOLERANCE, "")
    commit(repository.folder)
    repository.edit("budget", "tolerance = { rtol = 1e-4, atol = 1e-5 }\nbudget")


EDGE = '[targets.edge]\nruntime = "onnxruntime>=1.20,<1.22"\noptimization = ["all"]\n'
IGNORE = (
    '[[ignore]]\nrule = "path-leaked"\nreason = "known"\nmodel = "models/a.onnx"\nfingerprints = ["0123456789abcdef"]\n'
)
BUDGET = "budget = { size-mib = 10, slower-than-baseline = 1.2 }\n"
TOLERANCE = "tolerance = { rtol = 1e-3, atol = 1e-4 }\n"

WEAKENINGS: dict[str, tuple[Edit, list[str]]] = {
    "target-removed": (
        replace(EDGE, ""),
        ["- [targets.server]: target `edge` (`onnxruntime>=1.20,<1.22`) was removed"],
    ),
    "target-narrowed": (
        replace(">=1.18,<1.32", ">=1.20,<1.32"),
        [
            "- runtime: `runtime` of target `server` changed from `onnxruntime>=1.18,<1.32` to "
            "`onnxruntime>=1.20,<1.32`; onnxruntime 1.18.0–1.19.2 are no longer required"
        ],
    ),
    "target-narrowed-below-the-newest-release": (
        replace(">=1.18,<1.32", ">=1.18,<1.30"),
        [
            "- runtime: `runtime` of target `server` changed from `onnxruntime>=1.18,<1.32` to "
            "`onnxruntime>=1.18,<1.30`; onnxruntime 1.30.0–1.31.1 are no longer required"
        ],
    ),
    "select-fewer": (
        replace('<1.32"\n', '<1.32"\nselect = "newest"\n'),
        ["- select: `select` of target `server` changed from `minors` to `newest`, which checks fewer releases"],
    ),
    "not-required": (
        replace('<1.32"\n', '<1.32"\nrequired = false\npython = ".venv"\n'),
        [
            "- required: target `server` is no longer required",
            "- python: target `server` runs in your environment `.venv` instead of locked environments",
        ],
    ),
    "fewer-levels": (
        replace('<1.32"\n', '<1.32"\noptimization = ["all"]\n'),
        ["- optimization: `optimization` of target `server` no longer contains `disabled`"],
    ),
    "settings-changed-without-a-row": (
        change_target_without_row,
        [
            "~ runtime: `runtime` of target `server` changed from `onnxruntime>=1.18,<1.32` to "
            "`onnxruntime>=1.18,<1.33`",
            "- runtimes: the lock no longer contains onnxruntime 1.18.1 for target `server`",
        ],
    ),
    "older-patch-locked": (
        lambda repository: repository.edit_target("edge", runtime("1.20.0"), runtime("1.21.1")),
        ["- runtimes: target `edge` is locked with onnxruntime 1.20.0 instead of onnxruntime 1.20.1"],
    ),
    "rule-off": (
        replace('size-grew = "error"', 'size-grew = "off"'),
        ["- size-grew: rule `size-grew` was turned off (previously `error`)"],
    ),
    "rule-lowered-from-its-default": (
        replace('size-grew = "error"', 'size-grew = "error"\nload-failed = "note"'),
        ["- load-failed: rule `load-failed` was lowered to `note` (previously `error`)"],
    ),
    "own-rule-off": (
        replace('size-grew = "error"', 'size-grew = "error"\npolicy-weakened = "off"'),
        ["- policy-weakened: rule `policy-weakened` was turned off (previously `warning`)"],
    ),
    "ignore-added": (
        replace(IGNORE, IGNORE + '\n[[ignore]]\nrule = "load-failed"\nreason = "later"\n'),
        ["- [[ignore]]: an `[[ignore]]` entry of `load-failed` for `**` was added (reason: later)"],
    ),
    "ignore-with-more-fingerprints": (
        replace('["0123456789abcdef"]', '["0123456789abcdef", "aaaaaaaaaaaaaaaa"]'),
        ["- [[ignore]]: the `[[ignore]]` entry of `path-leaked` for `models/a.onnx` accepts more: 1 new fingerprint"],
    ),
    "ignore-without-fingerprints": (
        replace('fingerprints = ["0123456789abcdef"]\n', ""),
        [
            "- [[ignore]]: the `[[ignore]]` entry of `path-leaked` for `models/a.onnx` accepts more: "
            "`fingerprints` was removed"
        ],
    ),
    "ignore-for-more-models": (
        replace('model = "models/a.onnx"\n', ""),
        ["- [[ignore]]: the `[[ignore]]` entry of `path-leaked` for `**` was changed; it applied to `models/a.onnx`"],
    ),
    "excluded": (
        replace("ir-version", 'exclude = ["**/b.onnx"]\nir-version'),
        ["- exclude: `models/b.onnx` is no longer checked: `**/b.onnx` in `exclude` matches it"],
    ),
    "glob-narrowed": (
        replace('models = ["models/*.onnx"]', 'models = ["models/a.onnx"]'),
        ["- models: `models/b.onnx` is no longer checked: `models` without `models/*.onnx` does not match it"],
    ),
    "renamed-out": (
        move_out,
        ["- models: `models/b.onnx` was renamed to `old/b.onnx`, which is not checked: `models` does not match it"],
    ),
    "renamed-out-with-an-edit": (
        edit_and_move_out,
        ["- models: `models/b.onnx` was renamed to `old/b.onnx`, which is not checked: `models` does not match it"],
    ),
    "tolerance-loosened": (
        replace("rtol = 1e-3", "rtol = 1e-1"),
        [
            "- tolerance: `tolerance` of `models/a.onnx` and `models/b.onnx` changed from rtol 0.001 and atol 0.0001 "
            "to rtol 0.1 and atol 0.0001"
        ],
    ),
    "tolerance-of-one-output": (
        replace(TOLERANCE, "tolerance = { rtol = 1e-3, atol = 1e-4, a = { rtol = 0.0, atol = 1.0 } }\n"),
        [
            "- tolerance: `tolerance` for output `a` of `models/a.onnx` and `models/b.onnx` changed from rtol 0.001 "
            "and atol 0.0001 to rtol 0 and atol 1"
        ],
    ),
    "measured-tolerance-replaced": (
        tolerate_as_by_default,
        [
            "- tolerance: `tolerance` for output `a` of `models/a.onnx` changed from rtol 0 and atol 8e-06 to rtol "
            "0.0001 and atol 1e-05"
        ],
    ),
    "sizes-dropped": (
        replace("sizes = { N = [1, 3] }", "sizes = { N = [1] }"),
        ["- sizes: `sizes` of `models/a.onnx` and `models/b.onnx` no longer tests 3 for the axis `N`"],
    ),
    "one-size-instead-of-the-default": (
        replace('source = "export.py:build"\n', 'source = "export.py:build"\nsizes = { M = [1] }\n'),
        ["- sizes: `sizes` of `models/a.onnx` now tests only 1 for the axis `M`"],
    ),
    "budget-loosened": (
        replace("size-mib = 10", "size-mib = 20"),
        ["- budget: budget `size-mib` of `models/a.onnx` and `models/b.onnx` changed from 10.0 to 20.0"],
    ),
    "budget-removed": (
        replace(BUDGET, ""),
        [
            "- [[model]]: budget `size-mib` of `models/a.onnx` and `models/b.onnx` was removed",
            "- [[model]]: budget `slower-than-baseline` of `models/a.onnx` and `models/b.onnx` was removed",
        ],
    ),
    "limit-raised": (
        replace("time-s = 60", "time-s = 600"),
        ["- time-s: `time-s` in `[limits]` changed from `60.0` to `600.0`"],
    ),
    "source-removed": (
        replace('source = "export.py:build"\n', ""),
        [
            "- [[model]]: `source` of `models/a.onnx` was removed; parity with the source and the export are no longer "
            "checked"
        ],
    ),
    "inputs-removed": (
        replace('inputs = "cases/*.npz"\n', ""),
        ["- [[model]]: `inputs` of `models/a.onnx` was removed"],
    ),
    "targets-of-a-model": (
        replace('source = "export.py:build"\n', 'source = "export.py:build"\ntargets = ["server"]\n'),
        ["- targets: target `edge` no longer applies to `models/a.onnx`"],
    ),
    "ir-version-raised": (
        replace('"<=10"', '"<=11"'),
        ["- ir-version: `ir-version` changed from `<=10` to `<=11`"],
    ),
    "opset-pin-removed": (
        replace('opset = { "ai.onnx" = 17 }\n', ""),
        ["- models: the required opset of `ai.onnx` changed from `17` to any"],
    ),
    "opset-of-a-model-removed": (
        replace('opset = { "ai.onnx.ml" = 3 }\n', ""),
        ["- [[model]]: the required opset of `ai.onnx.ml` of `models/a.onnx` changed from `3` to the default"],
    ),
    "toolchain-requirement-removed": (
        replace('requires = ["torch==2.13.*"]\n', ""),
        ["- [toolchain]: `requires` in `[toolchain]` no longer contains `torch==2.13.*`"],
    ),
    "lock-row-removed": (
        lambda repository: repository.edit_target("server", runtime("1.19.2"), runtime("1.20.1")),
        ["- runtimes: the lock no longer contains onnxruntime 1.18.1 for target `server`"],
    ),
    "measured-tolerance-raised": (
        lambda repository: repository.edit_model("models/a.onnx", tolerance={"a": MeasuredTolerance(noise=1, bound=8)}),
        ["- a: the measured tolerance of output `a` of `models/a.onnx` changed from 8e-06 to 8"],
    ),
    "accuracy-lowered": (
        lambda repository: repository.edit_model(
            "models/a.onnx",
            quantization={
                "a": MeasuredQuantization(
                    sqnr_db=3, cosine=0.5, top1=0.5, source="b.onnx", runtime="onnxruntime 1.20.1"
                )
            },
        ),
        [
            "- a: the required accuracy of output `a` of `models/a.onnx` changed from 37 dB and top-1 97.0% to 0 dB "
            "and top-1 48.0%"
        ],
    ),
}


def lock_newer(repository: PolicyRepository) -> None:
    """Replace a locked release by a newer patch of its minor."""
    repository.edit_target("server", runtime("1.18.2"), runtime("1.19.2"), runtime("1.20.1"))


def add_model(repository: PolicyRepository) -> None:
    """Add a model that the config already selects."""
    write(repository.folder / "models/c.onnx", parse("g (float[N, 4] x) => (float[N, 4] c) { c = Relu(x) }"))
    git(repository.folder, "add", "models/c.onnx")


def move_within(repository: PolicyRepository) -> None:
    """Rename a model to another name that `models` matches."""
    git(repository.folder, "mv", "models/b.onnx", "models/c.onnx")


def move_config(repository: PolicyRepository) -> None:
    """Move the config to `pyproject.toml`, without a change."""
    config = repository.folder / "onnxgate.toml"
    text = config.read_text().replace("[[", "[[tool.onnxgate.").replace("\n[", "\n[tool.onnxgate.")
    text = text.replace("[tool.onnxgate.[tool.onnxgate.", "[[tool.onnxgate.")
    (repository.folder / "pyproject.toml").write_text(f"[tool.onnxgate]\n{text}")
    config.unlink()
    repository.config_name = "pyproject.toml"


def rename_with_ignore(repository: PolicyRepository) -> None:
    """Rename a model, and the ignore and the settings that name it."""
    git(repository.folder, "mv", "models/a.onnx", "models/c.onnx")
    path = repository.folder / "onnxgate.toml"
    path.write_text(path.read_text().replace("models/a.onnx", "models/c.onnx"))


def restrict_ignore_to_a_model(repository: PolicyRepository) -> None:
    """Restrict an ignore from a glob to one of its models."""
    repository.edit('model = "models/a.onnx"', 'model = "models/*.onnx"')
    commit(repository.folder)
    repository.edit('model = "models/*.onnx"', 'model = "models/a.onnx"')


HONEST: dict[str, tuple[Edit, list[str]]] = {
    "nothing": (lambda _: None, []),
    "comments-and-order": (replace("[limits]", "# limits of one job\n[limits]"), []),
    "reason-of-an-ignore": (replace('reason = "known"', 'reason = "reported upstream"'), []),
    "requirement-in-another-order": (replace(">=1.18,<1.32", "<1.32, >=1.18"), []),
    "model-added": (add_model, []),
    "model-renamed": (move_within, []),
    "config-moved": (move_config, []),
    "target-added": (
        replace("[toolchain]", '[targets.web]\nruntime = "onnxruntime>=1.30"\n\n[toolchain]'),
        ["~ [targets.web]: target `web` (`onnxruntime>=1.30`) was added"],
    ),
    "target-renamed": (
        replace("[targets.edge]", "[targets.device]"),
        ["~ [targets.device]: target `edge` was renamed to `device`"],
    ),
    "target-extended": (
        replace(">=1.18,<1.32", ">=1.17,<1.33"),
        ["~ runtime: `runtime` of target `server` changed from `onnxruntime>=1.18,<1.32` to `onnxruntime>=1.17,<1.33`"],
    ),
    "more-releases": (
        replace('<1.32"\n', '<1.32"\nselect = "all"\n'),
        ["~ select: `select` of target `server` changed from `minors` to `all`"],
    ),
    "rule-raised": (
        replace('size-grew = "error"', 'size-grew = "error"\nweights-changed = "error"'),
        ["~ weights-changed: rule `weights-changed` was raised to `error` (previously `note`)"],
    ),
    "ignore-removed": (
        replace(IGNORE, ""),
        ["~ models: an `[[ignore]]` entry of `path-leaked` for `models/a.onnx` was removed or restricted"],
    ),
    "ignore-restricted": (
        replace('reason = "known"', 'reason = "known"\nuntil = 2027-01-31'),
        ["~ [[ignore]]: an `[[ignore]]` entry of `path-leaked` for `models/a.onnx` was removed or restricted"],
    ),
    "ignore-restricted-to-a-model": (
        restrict_ignore_to_a_model,
        ["~ [[ignore]]: an `[[ignore]]` entry of `path-leaked` for `models/*.onnx` was removed or restricted"],
    ),
    "ignore-of-a-renamed-model": (
        rename_with_ignore,
        [],
    ),
    "tolerance-tightened": (
        replace("rtol = 1e-3", "rtol = 1e-4"),
        [
            "~ tolerance: `tolerance` of `models/a.onnx` and `models/b.onnx` changed from rtol 0.001 and atol 0.0001 "
            "to rtol 0.0001 and atol 0.0001"
        ],
    ),
    "sizes-added": (
        replace("sizes = { N = [1, 3] }", "sizes = { N = [1, 3, 8] }"),
        ["~ sizes: `sizes` of `models/a.onnx` and `models/b.onnx` changed for the axis `N`"],
    ),
    "lower-limit": (
        replace("time-s = 60", "time-s = 30"),
        ["~ time-s: `time-s` in `[limits]` changed from `60.0` to `30.0`"],
    ),
    "newer-patch-locked": (
        lock_newer,
        ["~ runtimes: target `server` is locked with onnxruntime 1.18.2 instead of onnxruntime 1.18.1"],
    ),
    "release-added-to-the-lock": (
        lambda repository: repository.edit_target("edge", runtime("1.20.1"), runtime("1.21.1"), runtime("1.22.0")),
        ["~ runtimes: target `edge` is also locked with onnxruntime 1.22.0"],
    ),
    "other-numpy-locked": (
        lambda repository: repository.edit_target("edge", runtime("1.20.1"), runtime("1.21.1", numpy="2.0.2")),
        ["~ runtimes: the pins of onnxruntime 1.21.1 changed (numpy 1.26.4 to 2.0.2)"],
    ),
    "measured-again": (
        lambda repository: repository.edit_model(
            "models/a.onnx", tolerance={"a": MeasuredTolerance(noise=1.5e-6, bound=1.2e-5)}
        ),
        ["~ a: the measured tolerance of output `a` of `models/a.onnx` changed from 8e-06 to 1.2e-05"],
    ),
}
