/**
 * The worker of ONNX Runtime Web: `node …/web/main.mjs <folder of the package> <process id of the host>`.
 *
 * It answers jobs, a line of JSON each, until the host has no more; `runtimes/jobs.py` says what they are.
 */

import { Engine } from "./engine.mjs";
import { guard } from "./guard.mjs";
import { answer } from "./serve.mjs";
import { Channel } from "./wire.mjs";

const [folder, host] = process.argv.slice(2);
const channel = new Channel();
const engine = new Engine(folder);
const guarded = guard(Number(host));
channel.phase("ready");
for await (const request of channel.requests()) {
  const release = guarded(request.id, request.memory_mib);
  await answer(request, engine, channel);
  release();
}
process.exit(0);
