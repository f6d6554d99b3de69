// A fake engine that misbehaves in the way that the model, a text file, requests. Each instance counts its sessions.

const fs = require("fs");

let sessions = 0;

const DEEDS = {
  trap: () => {
    throw new WebAssembly.RuntimeError("memory access out of bounds");
  },
  overflow: () => DEEDS.overflow() + 1,
  throw: () => {
    throw 9206416;
  },
  print: () => {
    console.log("printed by console");
    process.stdout.write("printed by a stream\n");
    fs.writeSync(1, "printed by descriptor\n");
  },
  reject: () => void Promise.reject(new Error("nobody waits for this")),
  hang: () => {
    for (;;);
  },
  grow: () => {
    const taken = [];
    for (;;) taken.push(Buffer.alloc(2 ** 24, 1));
  },
};

function create(bytes) {
  const text = Buffer.from(bytes).toString("utf8");
  sessions += 1;
  if (text.startsWith("load ")) DEEDS[text.slice("load ".length)]();
  const run = async () => {
    if (text.startsWith("run ")) DEEDS[text.slice("run ".length)]();
    return { y: { type: "float32", data: Float32Array.of(3, sessions), dims: [2] } };
  };
  return { outputNames: ["y"], run, release: async () => {} };
}

exports.env = { wasm: {}, versions: { web: "0.0.1" } };
exports.Tensor = class {};
exports.InferenceSession = { create: async (bytes) => create(bytes) };
