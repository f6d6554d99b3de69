/** External data of a model: finds its locations, and reads files in the model's folder only. */

import fs from "node:fs";
import path from "node:path";

const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;
// Source: onnx.proto. Message -> field number -> message in the field; other fields are skipped.
const MESSAGES = {
  model: { 7: "graph", 25: "function" },
  graph: { 1: "node", 5: "tensor", 15: "sparse" },
  function: { 7: "node" },
  node: { 5: "attribute" },
  attribute: { 5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse" },
  sparse: { 1: "tensor", 2: "tensor" },
  tensor: { 13: "entry" },
};
const KEY = 1;
const VALUE = 2;

/** Returns the model's external data files in the form that the runtime expects, without missing files. */
export function dataFiles(model, bytes) {
  const folder = path.dirname(model);
  return [...locations(bytes)].flatMap((location) => {
    const file = path.resolve(folder, location);
    return isInside(file, folder) ? [{ path: location, data: fs.readFileSync(file) }] : [];
  });
}

/** Returns the external data locations in a model, without duplicates. */
export function locations(bytes) {
  const found = new Set();
  try {
    collect(bytes, "model", found);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // not a model; the runtime reports the error
  }
  return found;
}

function collect(bytes, kind, found) {
  for (const [field, value] of fields(bytes)) {
    const inner = MESSAGES[kind][field];
    if (inner === "entry") collectEntry(value, found);
    else if (inner !== undefined) collect(value, inner, found);
  }
}

function collectEntry(bytes, found) {
  const entry = new Map(Array.from(fields(bytes), ([field, value]) => [field, Buffer.from(value).toString("utf8")]));
  if (entry.get(KEY) === "location") found.add(entry.get(VALUE) ?? "");
}

/** Yields the number and content of each length-delimited field; skips other fields. */
function* fields(bytes) {
  for (let at = 0; at < bytes.length; ) {
    const [tag, afterTag] = varint(bytes, at);
    const kind = tag & 7;
    if (kind === BYTES) {
      const [length, start] = varint(bytes, afterTag);
      if (start + length > bytes.length) throw new RangeError("a field exceeds its message");
      yield [Math.floor(tag / 8), bytes.subarray(start, start + length)];
      at = start + length;
    } else {
      at = skipped(bytes, afterTag, kind);
    }
  }
}

function skipped(bytes, at, kind) {
  if (kind === VARINT) return varint(bytes, at)[1];
  if (kind === FIXED64) return at + 8;
  if (kind === FIXED32) return at + 4;
  throw new RangeError(`unknown wire type ${kind}`);
}

function varint(bytes, at) {
  let value = 0;
  for (let shift = 1; at < bytes.length; shift *= 128) {
    const byte = bytes[at++];
    value += (byte & 127) * shift;
    if (byte < 128) return [value, at];
  }
  throw new RangeError("a number exceeds its message");
}

/** Returns whether the file is in the folder or a subfolder, even after resolving links. */
function isInside(file, folder) {
  try {
    const relative = path.relative(fs.realpathSync(folder), fs.realpathSync(file));
    const escapes = relative.split(path.sep)[0] === ".." || path.isAbsolute(relative);
    return !escapes && fs.statSync(file).isFile();
  } catch {
    return false;
  }
}
