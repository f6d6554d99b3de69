/** Connection to the parent process: one JSON line per job, phase and reply. */

import fs from "node:fs";

const OUT = 1;
const LOG = 2;
const NEWLINE = 0x0a;

export class Channel {
  /** Redirects all other output to the log, including what WebAssembly modules write to file descriptor 1. */
  constructor() {
    this.id = 0;
    this.write = fs.writeSync;
    fs.writeSync = (descriptor, ...rest) => this.write.call(fs, descriptor === OUT ? LOG : descriptor, ...rest);
    process.stdout.write = process.stderr.write.bind(process.stderr);
  }

  /** Yields requests until the input ends. */
  async *requests() {
    for await (const line of lines(process.stdin)) {
      const request = JSON.parse(line);
      this.id = request.id;
      yield request;
    }
  }

  /** Reports the start of a phase, so that the pool can name the phase of a crash. */
  phase(name) {
    this.#send({ id: this.id, phase: name });
  }

  /** Replies to the current request. */
  reply(reply) {
    this.#send({ id: this.id, reply });
  }

  #send(message) {
    sendLine(message, this.write);
  }
}

/** Writes a complete message with the original `writeSync`. */
export function sendLine(message, write = fs.writeSync) {
  let data = Buffer.from(JSON.stringify(message) + "\n", "utf8");
  while (data.length) data = data.subarray(write.call(fs, OUT, data));
}

/** Yields lines, which end at newlines only: names may contain other line separators. */
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
