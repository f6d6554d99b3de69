/**
 * Worker of ONNX Runtime Web: `node …/web/main.mjs <folder of the package> <process id of the parent>`.
 *
 * It runs jobs, one JSON line each, until its input ends; `core/jobs.py` defines the jobs.
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
