/** ONNX Runtime Web from the folder of its package, proven to compute before it is asked for anything. */

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const SILENT = 4; // log severity "fatal": the texts of errors come as exceptions
// <ir_version: 3, opset_import: ["" : 7]> g (float[1] x) => (float[1] y) { y = Identity (x) }
const IDENTITY =
  "CAM6OQoSCgF4EgF5IghJZGVudGl0eToAEgFnWg8KAXgSCgoICAESBAoCCAFiDwoBeRIKCggIARIECgIIAUIECgAQBw==";

export class Engine {
  #loaded = null;

  constructor(folder) {
    this.folder = folder;
    this.require = createRequire(path.join(folder, "package.json"));
  }

  /** The package's module, loaded once. */
  ort() {
    this.#loaded ??= this.#load();
    return this.#loaded;
  }

  /** What a C++ exception left behind is not used again: from then on there is another instance. */
  forget() {
    this.#loaded = null;
    for (const file of Object.keys(this.require.cache)) {
      if (file.startsWith(path.dirname(this.folder) + path.sep)) delete this.require.cache[file];
    }
  }

  /** The version of a package beside it; undefined where there is none. */
  versionOf(name) {
    try {
      return JSON.parse(fs.readFileSync(path.join(path.dirname(this.folder), name, "package.json"), "utf8")).version;
    } catch {
      return undefined;
    }
  }

  async #load() {
    delete globalThis.fetch; // all that a session needs lies on disk
    // Source: onnxruntime-web 1.20.1 under Node 24 takes a float16 as the new array alone, other pairs as its bits too.
    delete globalThis.Float16Array;
    const ort = this.require(path.basename(this.folder)); // by name, so that its `exports` count
    ort.env.logLevel = "fatal";
    ort.env.wasm.numThreads = 1; // results do not depend on a machine's cores
    ort.env.wasm.proxy = false;
    await prove(ort);
    return ort;
  }
}

/** What every session is made with. */
export function sessionOptions(optimization, externalData = []) {
  return {
    executionProviders: ["wasm"],
    graphOptimizationLevel: optimization,
    executionMode: "sequential",
    logSeverityLevel: SILENT,
    ...(externalData.length ? { externalData } : {}),
  };
}

/** A tensor through the engine and back. */
async function prove(ort) {
  const session = await ort.InferenceSession.create(Buffer.from(IDENTITY, "base64"), sessionOptions("all"));
  const { y } = await session.run({ x: new ort.Tensor("float32", Float32Array.of(3), [1]) });
  await session.release();
  if (y.data[0] !== 3) throw new Error(`a 3 came back as ${y.data[0]}`);
}
