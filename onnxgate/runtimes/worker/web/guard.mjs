/**
 * A thread beside the engine: the worker does not outlive the process that started it, nor takes more memory than its
 * job may, whatever the engine is doing at that moment.
 */

import { Worker, isMainThread, workerData } from "node:worker_threads";
import { fileURLToPath } from "node:url";

import { sendLine } from "./wire.mjs";

const POLL_MS = 100;
const MEMORY_MIB = 0;
const ID = 1;

/** Start it. What is returned is told of each job, and returns what is to be called at the job's end. */
export function guard(host) {
  const job = new Int32Array(new SharedArrayBuffer(8));
  const options = { workerData: { guarded: job, host }, stdout: false, stderr: false };
  new Worker(fileURLToPath(import.meta.url), options).unref();
  return (id, memoryMib) => {
    Atomics.store(job, ID, id);
    Atomics.store(job, MEMORY_MIB, memoryMib ?? 0);
    return () => Atomics.store(job, MEMORY_MIB, 0);
  };
}

function look(job, host) {
  if (!isHostThere(host)) end();
  const limit = Atomics.load(job, MEMORY_MIB);
  if (limit && process.memoryUsage.rss() > limit * 2 ** 20) {
    sendLine({ id: Atomics.load(job, ID), reply: outOfMemory() });
    process.kill(process.pid, "SIGKILL");
  }
}

/** Elsewhere than on Windows an orphan gets another parent. */
function isHostThere(host) {
  if (process.platform !== "win32") return process.ppid === host;
  try {
    return process.kill(host, 0);
  } catch {
    return false;
  }
}

/** The worker with all of its group, of which it is the first. */
function end() {
  try {
    process.kill(process.platform === "win32" ? process.pid : -process.pid, "SIGKILL");
  } catch {
    process.kill(process.pid, "SIGKILL");
  }
}

function outOfMemory() {
  const failure = { type: "MemoryError", text: "the job's memory limit was exceeded", memory: true };
  return { outcome: "refused", failure };
}

if (!isMainThread && workerData?.guarded) {
  setInterval(() => look(workerData.guarded, workerData.host), POLL_MS);
}
