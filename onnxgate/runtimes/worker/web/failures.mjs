/** Errors of the runtime, cleaned for display. */

import path from "node:path";

const TEXT_LIMIT = 4_000;
const READ_LIMIT = 40_000;

const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?/g;
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;
// C++ source line and function, as in `../failures.py`. Repetitions are bounded for speed.
const SIGNATURE =
  /(?<![^\s:])(?:[A-Za-z]:\\|\/)[^\s:]*[/\\]\w+\.(?:cc|h):\d+ .{0,2000}?\)(?: const)?(?:::<lambda\(\)>)?(?: \[with [^\]]{0,2000}\])? (?=[A-Z[a-z])/g;
const PLACE = /(?<![^\s:])\w+\.(?:cc|h):\d+ /g;
const OVERFLOWN = /Maximum call stack size exceeded/;

/** The job cannot run for a reason other than the model, such as an unreadable file. */
export class UnusableError extends Error {}

/**
 * Returns the error as a `jobs.Failure`, without the path of the folder `hide`.
 *
 * `memory` is false: the 4 GiB limit of WebAssembly is not the job's memory limit, and the message names it.
 */
export function failure(error, hide = "") {
  const text = hidden(error instanceof Error ? error.message : String(error), hide);
  return { type: typeName(error), text: clean(text), memory: false };
}

/** Returns the type and the message of the error. */
export function words(error) {
  return error instanceof Error ? `${typeName(error)}: ${error.message}` : `${typeName(error)} ${String(error)}`;
}

/** Removes terminal escapes, control characters and C++ source lines, which vary by release; limits the length. */
export function clean(text) {
  const plain = text.slice(0, READ_LIMIT).replace(ESCAPES, "").replaceAll("\r\n", "\n");
  const short = plain.replace(CONTROLS, "").replace(SIGNATURE, "").replace(PLACE, "").trim();
  return short.length <= TEXT_LIMIT ? short : short.slice(0, TEXT_LIMIT - 1) + "…";
}

/** Returns whether the error interrupted WebAssembly (trap or stack overflow), so that its memory may be corrupt. */
export function isFatal(error) {
  return error instanceof WebAssembly.RuntimeError || (error instanceof RangeError && OVERFLOWN.test(error.message));
}

function typeName(error) {
  return error?.constructor?.name ?? typeof error;
}

function hidden(text, folder) {
  return folder ? text.replaceAll(folder + path.sep, "").replaceAll(folder, ".") : text;
}
