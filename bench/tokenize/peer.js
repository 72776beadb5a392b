// SPDX-License-Identifier: Apache-2.0
// The same measurement as tokenize_bench.cpp for npm's `tokenizers`, HuggingFace's Rust library.
const fs = require('fs');
const path = require('path');
const {Tokenizer} = require('tokenizers');

// Processor time of all threads of this process.
const now = () => { const {user, system} = process.cpuUsage(); return (user + system) / 1e6; };

async function bestOf(rounds, work) {
  let best = Infinity;
  for (let i = 0; i < rounds; ++i) {
    const start = now();
    await work();
    best = Math.min(best, now() - start);
  }
  return best;
}

function chunks(text, size) {
  const characters = Array.from(text), parts = [];
  for (let i = 0; i < characters.length; i += size) parts.push(characters.slice(i, i + size).join(''));
  return parts;
}

(async () => {
  const [dir, ...files] = process.argv.slice(2);
  const file = path.join(dir, 'tokenizer.json');
  let tokenizer;
  console.log(`load ${(await bestOf(3, () => (tokenizer = Tokenizer.fromString(fs.readFileSync(file, 'utf8')))) * 1e3).toFixed(1)} ms (best of 3)`);
  const encode = (text) => tokenizer.encode(text, null, {addSpecialTokens: false});
  for (const name of files) {
    const text = fs.readFileSync(name, 'utf8'), parts = chunks(text, 4000), mb = Buffer.byteLength(text) / 1e6;
    let ids = [];
    const encoding = await bestOf(3, async () => {
      ids = [];
      for (const part of parts) ids.push((await encode(part)).getIds());
    });
    const decoding = await bestOf(3, async () => {
      for (const row of ids) await tokenizer.decode(row, false);
    });
    const tokens = ids.reduce((sum, row) => sum + row.length, 0);
    console.log(`${path.basename(name)} ${mb.toFixed(2)} MB ${tokens} tokens  encode ${(mb / encoding).toFixed(1)} MB/s  decode ${(mb / decoding).toFixed(1)} MB/s`);
  }
  for (const [name, text] of [['200k x a', 'a'.repeat(200000)], ['200k spaces', ' '.repeat(200000)],
                              ['20k x <|image_pad|>', '<|image_pad|>'.repeat(20000)]]) {
    const time = await bestOf(3, () => encode(text));
    console.log(`${name} ${(time * 1e3).toFixed(1)} ms`);
  }
})();
