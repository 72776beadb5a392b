// SPDX-License-Identifier: Apache-2.0
// A headless Chromium, driven over its debugging pipe: a page that is opened, asked and photographed.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export async function openBrowser(program) {
  const profile = mkdtempSync(join(tmpdir(), "apus-page-"));
  const options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe"];
  const child = spawn(program, [...options, `--user-data-dir=${profile}`, "--window-size=1200,800", "about:blank"], {
    stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
  });
  // Messages are JSON, a zero byte behind each. An answer has the number of what it answers.
  const waiting = new Map(), complaints = [];
  let rest = "", number = 0;
  child.stdio[4].setEncoding("utf8").on("data", (data) => {
    const parts = (rest + data).split("\0");
    rest = parts.pop();
    for (const message of parts.map((part) => JSON.parse(part))) {
      if (message.method === "Runtime.exceptionThrown") complaints.push(message.params.exceptionDetails.exception?.description);
      waiting.get(message.id)?.(message);
      waiting.delete(message.id);
    }
  });
  let session;
  const call = (method, params = {}) =>
    new Promise((done, failed) => {
      waiting.set(++number, (message) => (message.error ? failed(new Error(`${method}: ${message.error.message}`)) : done(message.result)));
      child.stdio[3].write(JSON.stringify({ id: number, method, params, sessionId: session }) + "\0");
    });
  const { targetId } = await call("Target.createTarget", { url: "about:blank" });
  session = (await call("Target.attachToTarget", { targetId, flatten: true })).sessionId;
  await call("Runtime.enable");

  const page = {
    complaints,
    open: (address) => call("Page.navigate", { url: address }),
    async ask(expression) {
      const { result, exceptionDetails } = await call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
      if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
      return result.value;
    },
    // Until the expression holds.
    async until(expression, seconds = 30) {
      for (const end = Date.now() + 1000 * seconds; Date.now() < end; await new Promise((done) => setTimeout(done, 50)))
        if (await page.ask(expression).catch(() => false)) return;
      throw new Error(`${seconds} s passed, but never: ${expression}`);
    },
    size: (width, height) => call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 500 }),
    async photograph(file) {
      writeFileSync(file, Buffer.from((await call("Page.captureScreenshot", { format: "png" })).data, "base64"));
    },
    async close() {
      child.kill();
      await new Promise((done) => child.once("exit", done));
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
  return page;
}
