/** ONNX Runtime Web, loaded from the folder of its package and tested before its first job. */

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const SILENT = 4; // log severity "fatal": errors are reported by exceptions
// <ir_version: 3, opset_import: ["" : 7]> g (float[1] x) => (float[1] y) { y = Identity (x) }
const IDENTITY =
  "CAM6OQoSCgF4EgF5IghJZGVudGl0eToAEgFnWg8KAXgSCgoICAESBAoCCAFiDwoBeRIKCggIARIECgIIAUIECgAQBw==";

export class Engine {
  #loaded = null;

  constructor(folder) {
    this.folder = folder;
    this.require = createRequire(path.join(folder, "package.json"));
  }

  /** Returns the package's module, which is loaded once. */
  ort() {
    this.#loaded ??= this.#load();
    return this.#loaded;
  }

  /** Discards the instance after a C++ exception, which leaves it in an undefined state; the next job loads a new one. */
  forget() {
    this.#loaded = null;
    for (const file of Object.keys(this.require.cache)) {
      if (file.startsWith(path.dirname(this.folder) + path.sep)) delete this.require.cache[file];
    }
  }

  /** Returns the version of a package in the same `node_modules`; undefined if it is not installed. */
  versionOf(name) {
    try {
      return JSON.parse(fs.readFileSync(path.join(path.dirname(this.folder), name, "package.json"), "utf8")).version;
    } catch {
      return undefined;
    }
  }

  async #load() {
    delete globalThis.fetch; // sessions must only use local files
    // Without this, float16 tensors cannot be created from their bits. Source: onnxruntime-web 1.20.1 with Node 24.
    delete globalThis.Float16Array;
    const ort = this.require(path.basename(this.folder)); // by name, so that its `exports` apply
    ort.env.logLevel = "fatal";
    ort.env.wasm.numThreads = 1; // results must not depend on the number of cores
    ort.env.wasm.proxy = false;
    await selfTest(ort);
    return ort;
  }
}

/** Returns the options of all sessions. */
export function sessionOptions(optimization, externalData = []) {
  return {
    executionProviders: ["wasm"],
    graphOptimizationLevel: optimization,
    executionMode: "sequential",
    logSeverityLevel: SILENT,
    ...(externalData.length ? { externalData } : {}),
  };
}

/** Runs a tensor through the engine. */
async function selfTest(ort) {
  const session = await ort.InferenceSession.create(Buffer.from(IDENTITY, "base64"), sessionOptions("all"));
  const { y } = await session.run({ x: new ort.Tensor("float32", Float32Array.of(3), [1]) });
  await session.release();
  if (y.data[0] !== 3) throw new Error(`the self-test returned ${y.data[0]} instead of 3`);
}
