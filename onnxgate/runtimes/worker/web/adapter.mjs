/** ONNX Runtime Web: what it makes of a model, in the values of `runtimes/jobs.py`. */

import fs from "node:fs";
import path from "node:path";

import { sessionOptions } from "./engine.mjs";
import { dataFiles } from "./external.mjs";
import { UnusableError, failure, isFatal } from "./failures.mjs";
import * as npy from "./npy.mjs";

const CPU = "CPUExecutionProvider"; // the kernels that its WebAssembly is made of
const PACKAGE = "onnxruntime-web";
// Said after the nodes have run, when an output is fetched that is no tensor, or none of a type that JavaScript holds.
// Source: onnxruntime-web 1.20.1 and 1.30.0.
const UNHOLDABLE = /non-tensor|unsupported (?:data )?type/i;

/** Versions, the runtime's as it says it itself; it has no Python. */
export async function probe(job, engine) {
  const { env } = await engine.ort();
  const asked = job.packages.map((name) => [name, engine.versionOf(name)]);
  const found = Object.fromEntries(asked.filter(([, version]) => version));
  const own = { [PACKAGE]: env.versions.web, node: process.versions.node };
  return { kind: "probe", python: "", packages: { ...found, ...own } };
}

/** Makes a session. */
export async function load(job, engine, phase) {
  const { session } = await made(job, engine, phase);
  await session.release();
  return { kind: "load", providers: [...job.providers] };
}

/** Makes a session and runs every case. */
export async function run(job, engine, phase) {
  let current = await made(job, engine, phase);
  const outputs = [...current.session.outputNames];
  const cases = [];
  for (const [index, each] of job.cases.entries()) {
    if (current.ort !== (await engine.ort())) current = await made(job, engine, phase);
    phase(`case ${each.name}`);
    cases.push(await runCase(current, engine, each.inputs, path.join(job.output, String(index))));
  }
  await current.session.release();
  return { kind: "run", providers: [...job.providers], outputs, cases };
}

/** A session, and the instance that it belongs to. */
async function made(job, engine, phase) {
  phase("load");
  refuseForeign(job);
  const ort = await engine.ort();
  const bytes = fs.readFileSync(job.model);
  const options = sessionOptions(job.optimization, dataFiles(job.model, bytes));
  return { ort, session: await told(engine, () => ort.InferenceSession.create(bytes, options)) };
}

/** Providers and libraries that it never has are no model's fault. */
function refuseForeign({ providers, extensions }) {
  const lacking = providers.filter((provider) => provider !== CPU);
  if (lacking.length) throw new UnusableError(`this build has no \`${lacking.join("`, `")}\`; it has \`${CPU}\``);
  if (extensions.length) throw new UnusableError("ONNX Runtime Web registers no libraries of custom operators");
}

/**
 * What some work gives, or an error that has words.
 *
 * Source: measured. Until 1.23 exceptions of C++ come as a bare number, since 1.24 as an error with their text.
 */
async function told(engine, work) {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Error) throw error;
    const release = (await engine.ort()).env.versions.web;
    engine.forget();
    throw new Error(`a C++ exception, whose text onnxruntime-web ${release} does not tell; releases since 1.24 do`);
  }
}

async function runCase({ ort, session }, engine, inputs, folder) {
  try {
    const feeds = Object.fromEntries(Object.entries(inputs).map(([name, file]) => [name, tensor(ort, name, file)]));
    const values = await told(engine, () => outputs(session, feeds));
    return { outputs: values.map((value, index) => written(path.join(folder, `${index}.npy`), value)) };
  } catch (error) {
    if (error instanceof UnusableError || isFatal(error)) throw error;
    return { failure: failure(error) };
  }
}

function tensor(ort, name, file) {
  const { type, data, dims } = npy.read(file);
  if (data === null) throw new TypeError(`input \`${name}\` is \`${type}\`, which ONNX Runtime Web does not take`);
  return new ort.Tensor(type, data, dims);
}

/** One value per output of the graph, null for those that cannot be held; all nodes are run in any case. */
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
