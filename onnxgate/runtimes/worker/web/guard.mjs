/** Watchdog thread: ends the worker when its parent process ends or its job exceeds the memory limit. */

import { Worker, isMainThread, workerData } from "node:worker_threads";
import { fileURLToPath } from "node:url";

import { sendLine } from "./wire.mjs";

const POLL_MS = 100;
const MEMORY_MIB = 0;
const ID = 1;

/** Starts the thread. Returns a function that starts a job and returns the function that ends it. */
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

/** Returns whether the parent process is alive. Except on Windows, orphans get a different parent. */
function isHostThere(host) {
  if (process.platform !== "win32") return process.ppid === host;
  try {
    return process.kill(host, 0);
  } catch {
    return false;
  }
}

/** Kills the worker and its process group, which it leads. */
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
