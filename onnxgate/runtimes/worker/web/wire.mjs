/** The pipe to the host: one line of JSON per job, one line per phase and per reply. */

import fs from "node:fs";

const OUT = 1;
const LOG = 2;
const NEWLINE = 0x0a;

export class Channel {
  /** From then on whatever is printed is only a log, also what a WebAssembly module writes to descriptor 1. */
  constructor() {
    this.id = 0;
    this.write = fs.writeSync;
    fs.writeSync = (descriptor, ...rest) => this.write.call(fs, descriptor === OUT ? LOG : descriptor, ...rest);
    process.stdout.write = process.stderr.write.bind(process.stderr);
  }

  /** One after another, until the host has no more. */
  async *requests() {
    for await (const line of lines(process.stdin)) {
      const request = JSON.parse(line);
      this.id = request.id;
      yield request;
    }
  }

  /** Say what begins now, so that the host knows what a crash interrupted. */
  phase(name) {
    this.#send({ id: this.id, phase: name });
  }

  /** Answer the request at hand. */
  reply(reply) {
    this.#send({ id: this.id, reply });
  }

  #send(message) {
    sendLine(message, this.write);
  }
}

/** Write a message in full, with a `writeSync` that nobody has replaced. */
export function sendLine(message, write = fs.writeSync) {
  let data = Buffer.from(JSON.stringify(message) + "\n", "utf8");
  while (data.length) data = data.subarray(write.call(fs, OUT, data));
}

/** Lines end at a newline and nowhere else: names may have any other character. */
async function* lines(stream) {
  let parts = [];
  for await (const chunk of stream) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      yield Buffer.concat([...parts, chunk.subarray(start, end)]).toString("utf8");
      parts = [];
      start = end + 1;
    }
    parts.push(chunk.subarray(start));
  }
}
