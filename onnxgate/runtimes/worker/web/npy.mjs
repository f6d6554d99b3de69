/** Tensors in numpy's `.npy` format, without pickle. */

import fs from "node:fs";
import path from "node:path";

import { UnusableError } from "./failures.mjs";

const MAGIC = Buffer.from("\x93NUMPY", "latin1");
const ALIGNMENT = 64;
// Element type in numpy, in ONNX Runtime Web, and its array class; float16 is stored as bits.
const ELEMENTS = [
  ["f2", "float16", Uint16Array],
  ["f4", "float32", Float32Array],
  ["f8", "float64", Float64Array],
  ["i1", "int8", Int8Array],
  ["i2", "int16", Int16Array],
  ["i4", "int32", Int32Array],
  ["i8", "int64", BigInt64Array],
  ["u1", "uint8", Uint8Array],
  ["u2", "uint16", Uint16Array],
  ["u4", "uint32", Uint32Array],
  ["u8", "uint64", BigUint64Array],
  ["b1", "bool", Uint8Array],
];
const BY_NUMPY = new Map(ELEMENTS.map(([numpy, type, array]) => [numpy, { type, array }]));
const BY_TYPE = new Map(ELEMENTS.map(([numpy, type]) => [type, numpy]));
const CODE_POINT_BYTES = 4;

/** Reads a tensor as `{type, data, dims}`; for unsupported types, `type` is numpy's name and `data` is null. */
export function read(file) {
  try {
    return decode(fs.readFileSync(file));
  } catch (error) {
    throw new UnusableError(`input \`${path.basename(file)}\` cannot be read: ${error.message}`);
  }
}

/** Writes a tensor; returns false if numpy cannot represent it. */
export function write(file, tensor) {
  if (tensor === null || !(tensor.type === "string" || BY_TYPE.has(tensor.type))) return false;
  const data = encode(tensor);
  try {
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, data);
  } catch (error) {
    throw new UnusableError(`an output cannot be written: ${error.message}`);
  }
  return true;
}

export function decode(file) {
  const { descr, fortran, dims, offset } = header(file);
  const [order, kind] = [descr[0], descr.slice(1)];
  const known = kind.startsWith("U") ? strings(Number(kind.slice(1))) : BY_NUMPY.get(kind);
  if (known === undefined) return { type: descr, data: null, dims };
  const count = dims.reduce((product, size) => product * size, 1);
  const data = known.read ? known.read(file, offset, count, order) : numbers(known.array, file, offset, count, order);
  return { type: known.type, data: fortran ? fromFortran(data, dims) : data, dims };
}

export function encode({ type, data, dims }) {
  if (type === "string") return encodeStrings(data, dims);
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  const single = type === "bool" || type.endsWith("int8");
  return Buffer.concat([encodeHeader((single ? "|" : "<") + BY_TYPE.get(type), dims), bytes]);
}

/** Source: numpy's description of its format; 1.0 stores the length of the header in 2 bytes, 2.0 and 3.0 in 4. */
function header(file) {
  if (!file.subarray(0, MAGIC.length).equals(MAGIC)) throw new Error("not a .npy file");
  const start = file[MAGIC.length] === 1 ? 10 : 12;
  const length = start === 10 ? file.readUInt16LE(8) : file.readUInt32LE(8);
  const text = file.toString("latin1", start, start + length);
  const descr = /'descr': *'([<>|=][A-Za-z]\d+)'/.exec(text);
  const order = /'fortran_order': *(True|False)/.exec(text);
  const shape = /'shape': *\(([\d, ]*)\)/.exec(text);
  if (!descr || !order || !shape) throw new Error("unsupported array type");
  const dims = shape[1].split(",").filter((size) => size.trim()).map(Number);
  return { descr: descr[1], fortran: order[1] === "True", dims, offset: start + length };
}

function encodeHeader(descr, dims) {
  const shape = dims.length === 1 ? `(${dims[0]},)` : `(${dims.join(", ")})`;
  const text = `{'descr': '${descr}', 'fortran_order': False, 'shape': ${shape}, }`;
  const length = Math.ceil((10 + text.length + 1) / ALIGNMENT) * ALIGNMENT - 10;
  const lengthBytes = Buffer.alloc(2);
  lengthBytes.writeUInt16LE(length);
  return Buffer.concat([MAGIC, Buffer.from([1, 0]), lengthBytes, Buffer.from(text.padEnd(length - 1) + "\n", "latin1")]);
}

/** Returns an aligned copy of the elements in this machine's byte order. */
function numbers(array, file, offset, count, order) {
  const size = array.BYTES_PER_ELEMENT * count;
  if (file.length < offset + size) throw new Error(`the file has ${file.length - offset} of ${size} bytes of data`);
  const bytes = Buffer.from(new ArrayBuffer(size));
  file.copy(bytes, 0, offset, offset + size);
  if (order === ">" && array.BYTES_PER_ELEMENT > 1) bytes[`swap${8 * array.BYTES_PER_ELEMENT}`]();
  return new array(bytes.buffer, 0, count);
}

/** Reads strings of a fixed number of code points, padded with zeros. */
function strings(length) {
  const readAll = (file, offset, count, order) => {
    const points = numbers(Uint32Array, file, offset, count * length, order);
    return Array.from({ length: count }, (_, index) => text(points.subarray(index * length, (index + 1) * length)));
  };
  return { type: "string", read: readAll };
}

function text(points) {
  let end = points.length;
  while (end && points[end - 1] === 0) end -= 1;
  return Array.from(points.subarray(0, end), (point) => String.fromCodePoint(point)).join("");
}

function encodeStrings(values, dims) {
  const points = values.map((value) => Array.from(value, (character) => character.codePointAt(0)));
  const length = points.reduce((longest, each) => Math.max(longest, each.length), 1);
  const data = Buffer.alloc(values.length * length * CODE_POINT_BYTES);
  points.forEach((each, row) => {
    each.forEach((point, column) => data.writeUInt32LE(point, (row * length + column) * CODE_POINT_BYTES));
  });
  return Buffer.concat([encodeHeader(`<U${length}`, dims), data]);
}

/** Converts elements from Fortran order to C order. */
function fromFortran(data, dims) {
  const ordered = data.slice();
  const index = dims.map(() => 0);
  for (let from = 0; from < data.length; from += 1) {
    ordered[index.reduce((place, each, axis) => place * dims[axis] + each, 0)] = data[from];
    for (let axis = 0; axis < dims.length && ++index[axis] === dims[axis]; axis += 1) index[axis] = 0;
  }
  return ordered;
}
