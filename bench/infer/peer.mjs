// SPDX-License-Identifier: Apache-2.0
// The same measurements as infer_bench.cpp, on llama.cpp through the npm package node-llama-cpp.
// Usage: node peer.mjs MODEL.gguf [threads]        prints one JSON object: {prefill_512, decode_1, decode_8, decode_32} in tokens/s
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const [modelPath, threads = "2"] = process.argv.slice(2);
const llama = await getLlama({gpu: false, build: "never", maxThreads: Number(threads), logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath});

const prompt = (length, salt) => Array.from({length}, (_, i) => 100 + ((i * 7919 + salt * 104729) % 20000));
const now = () => performance.now() / 1000;

async function decodeRate(sequences, promptLength, newTokens) {
  const context = await model.createContext({
    sequences, threads: Number(threads), batchSize: 512, flashAttention: true, contextSize: promptLength + newTokens + 8,
  });
  const all = Array.from({length: sequences}, () => context.getSequence());
  await Promise.all(all.map((s, i) => s.evaluateWithoutGeneratingNewTokens(prompt(promptLength, i))));
  const start = now();
  await Promise.all(all.map(async (sequence) => {
    let next = 42;
    for (let n = 0; n < newTokens; n++) {
      for await (const token of sequence.evaluate([next], {temperature: 0})) {
        next = token;
        break;
      }
      next = 42 + n;  // the same path for every engine; what is measured is the step
    }
  }));
  const rate = sequences * newTokens / (now() - start);
  await context.dispose();
  return rate;
}

async function prefillRate(length) {
  const context = await model.createContext({sequences: 1, threads: Number(threads), batchSize: 512, flashAttention: true, contextSize: length + 8});
  const sequence = context.getSequence();
  let best = 0;
  for (let round = 0; round < 3; round++) {
    await sequence.clearHistory();
    const start = now();
    await sequence.evaluateWithoutGeneratingNewTokens(prompt(length, round));
    best = Math.max(best, length / (now() - start));
  }
  await context.dispose();
  return best;
}

const result = {
  prefill_512: await prefillRate(512),
  decode_1: await decodeRate(1, 128, 64),
  decode_8: await decodeRate(8, 128, 64),
  decode_32: await decodeRate(32, 128, 64),
};
console.log(JSON.stringify(result));
process.exit(0);
