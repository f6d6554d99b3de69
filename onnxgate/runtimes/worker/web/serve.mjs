/** Runs one job and sends one reply, even after errors. */

import path from "node:path";

import * as adapter from "./adapter.mjs";
import { UnusableError, clean, failure, isFatal, words } from "./failures.mjs";

const TASKS = { probe: adapter.probe, load: adapter.load, run: adapter.run };
const NAME = "onnxruntime_web";

/** Runs the job of a request. */
export async function answer(request, engine, channel) {
  channel.phase("start");
  channel.reply((await unstarted(request, engine)) ?? (await perform(request.job, engine, (name) => channel.phase(name))));
}

/** Returns why the engine cannot be loaded, which is not the model's fault; null if it can. */
async function unstarted({ engine: name, job }, engine) {
  if (name !== NAME || !Object.hasOwn(TASKS, job.kind)) return unavailable(`\`${name}\` does not support the job \`${job.kind}\``);
  try {
    await engine.ort();
    return null;
  } catch (error) {
    return unavailable(clean(words(error)));
  }
}

async function perform(job, engine, phase) {
  try {
    return { outcome: "completed", result: await TASKS[job.kind](job, engine, phase) };
  } catch (error) {
    if (error instanceof UnusableError) return unavailable(error.message);
    if (isFatal(error)) crash(error);
    return { outcome: "refused", failure: failure(error, job.model ? path.dirname(job.model) : "") };
  }
}

/** Ends the process after an aborted WebAssembly, whose memory may be corrupt. */
function crash(error) {
  console.error(clean(words(error)));
  process.exit(1);
}

function unavailable(reason) {
  return { outcome: "unavailable", reason };
}
