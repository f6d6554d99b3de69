/** What the runtime said when it refused, fit to be shown. */

import path from "node:path";

const TEXT_LIMIT = 4_000;
const READ_LIMIT = 40_000;

const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?/g;
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;
// The line that refused and its C++ function, as in `failures.py` beside this folder. Bounded, so that no text is slow.
const SIGNATURE =
  /(?<![^\s:])(?:[A-Za-z]:\\|\/)[^\s:]*[/\\]\w+\.(?:cc|h):\d+ .{0,2000}?\)(?: const)?(?:::<lambda\(\)>)?(?: \[with [^\]]{0,2000}\])? (?=[A-Z[a-z])/g;
const PLACE = /(?<![^\s:])\w+\.(?:cc|h):\d+ /g;
const OVERFLOWN = /Maximum call stack size exceeded/;

/** A file of the job cannot be read or written: no model's fault. */
export class UnusableError extends Error {}

/**
 * The error as `jobs.Failure` has it; `hide` is a folder of this machine that is nobody's business.
 *
 * That the 4 GiB of a WebAssembly do not suffice is no limit of the job's: its own words say it.
 */
export function failure(error, hide = "") {
  const text = hidden(error instanceof Error ? error.message : String(error), hide);
  return { type: typeName(error), text: clean(text), memory: false };
}

/** The error with its type, in one text. */
export function words(error) {
  return error instanceof Error ? `${typeName(error)}: ${error.message}` : `${typeName(error)} ${String(error)}`;
}

/** Without terminal escapes, control characters and the lines of C++ that releases move; of bounded length. */
export function clean(text) {
  const plain = text.slice(0, READ_LIMIT).replace(ESCAPES, "").replaceAll("\r\n", "\n");
  const short = plain.replace(CONTROLS, "").replace(SIGNATURE, "").replace(PLACE, "").trim();
  return short.length <= TEXT_LIMIT ? short : short.slice(0, TEXT_LIMIT - 1) + "…";
}

/** Whether the WebAssembly was interrupted, so that its memory is not to be trusted: a trap, or an overflown stack. */
export function isFatal(error) {
  return error instanceof WebAssembly.RuntimeError || (error instanceof RangeError && OVERFLOWN.test(error.message));
}

function typeName(error) {
  return error?.constructor?.name ?? typeof error;
}

function hidden(text, folder) {
  return folder ? text.replaceAll(folder + path.sep, "").replaceAll(folder, ".") : text;
}
