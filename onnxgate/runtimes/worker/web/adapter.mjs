/** Adapter of ONNX Runtime Web; jobs and results have the fields of `core/jobs.py`. */

import fs from "node:fs";
import path from "node:path";

import { sessionOptions } from "./engine.mjs";
import { dataFiles } from "./external.mjs";
import { UnusableError, failure, isFatal } from "./failures.mjs";
import * as npy from "./npy.mjs";

const CPU = "CPUExecutionProvider"; // its WebAssembly contains the CPU kernels
const PACKAGE = "onnxruntime-web";
// Raised after all nodes ran, for an output that is not a tensor or has a type that JavaScript cannot represent.
// Source: onnxruntime-web 1.20.1 and 1.30.0.
const UNHOLDABLE = /non-tensor|unsupported (?:data )?type/i;

/** Returns the installed versions; the runtime reports its own version. */
export async function probe(job, engine) {
  const { env } = await engine.ort();
  const versions = job.packages.map((name) => [name, engine.versionOf(name)]);
  const found = Object.fromEntries(versions.filter(([, version]) => version));
  const own = { [PACKAGE]: env.versions.web, node: process.versions.node };
  return { kind: "probe", python: "", packages: { ...found, ...own } };
}

/** Creates a session. */
export async function load(job, engine, phase) {
  const { session } = await createSession(job, engine, phase);
  await session.release();
  return { kind: "load", providers: [...job.providers] };
}

/** Creates a session and runs every case. */
export async function run(job, engine, phase) {
  let current = await createSession(job, engine, phase);
  const outputs = [...current.session.outputNames];
  const cases = [];
  for (const [index, inputCase] of job.cases.entries()) {
    if (current.ort !== (await engine.ort())) current = await createSession(job, engine, phase);
    phase(`case ${inputCase.name}`);
    cases.push(await runCase(current, engine, inputCase.inputs, path.join(job.output, String(index))));
  }
  await current.session.release();
  return { kind: "run", providers: [...job.providers], outputs, cases };
}

/** Returns a session and the instance of the engine that it belongs to. */
async function createSession(job, engine, phase) {
  phase("load");
  refuseUnsupported(job);
  const ort = await engine.ort();
  const bytes = fs.readFileSync(job.model);
  const options = sessionOptions(job.optimization, dataFiles(job.model, bytes));
  return { ort, session: await withErrors(engine, () => ort.InferenceSession.create(bytes, options)) };
}

/** Rejects providers and libraries that this engine does not support, which is not the model's fault. */
function refuseUnsupported({ providers, extensions }) {
  const lacking = providers.filter((provider) => provider !== CPU);
  if (lacking.length) throw new UnusableError(`this build has no \`${lacking.join("`, `")}\`; available: \`${CPU}\``);
  if (extensions.length) throw new UnusableError("ONNX Runtime Web does not support libraries of custom operators");
}

/**
 * Returns the result of `work`; replaces an exception that has no message with an error.
 *
 * Source: measured. Up to 1.23, C++ exceptions are thrown as a number; since 1.24, as an error with their message.
 */
async function withErrors(engine, work) {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Error) throw error;
    const release = (await engine.ort()).env.versions.web;
    engine.forget();
    throw new Error(`C++ exception without a message (onnxruntime-web reports messages since 1.24; this is ${release})`);
  }
}

async function runCase({ ort, session }, engine, inputs, folder) {
  try {
    const feeds = Object.fromEntries(Object.entries(inputs).map(([name, file]) => [name, tensor(ort, name, file)]));
    const values = await withErrors(engine, () => outputs(session, feeds));
    return { outputs: values.map((value, index) => written(path.join(folder, `${index}.npy`), value)) };
  } catch (error) {
    if (error instanceof UnusableError || isFatal(error)) throw error;
    return { failure: failure(error) };
  }
}

function tensor(ort, name, file) {
  const { type, data, dims } = npy.read(file);
  if (data === null) throw new TypeError(`input \`${name}\` is \`${type}\`, which ONNX Runtime Web does not support`);
  return new ort.Tensor(type, data, dims);
}

/** Returns one value per output, null if JavaScript cannot represent it. All nodes run, even for null. */
async function outputs(session, feeds) {
  try {
    const values = await session.run(feeds);
    return session.outputNames.map((name) => values[name]);
  } catch (error) {
    if (!isUnholdable(error)) throw error;
  }
  const values = [];
  for (const name of session.outputNames) values.push(await output(session, feeds, name));
  return values;
}

async function output(session, feeds, name) {
  try {
    return (await session.run(feeds, [name]))[name];
  } catch (error) {
    if (!isUnholdable(error)) throw error;
    return null;
  }
}

function isUnholdable(error) {
  return error instanceof Error && UNHOLDABLE.test(error.message);
}

function written(file, value) {
  return npy.write(file, value) ? file : null;
}
