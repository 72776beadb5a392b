// SPDX-License-Identifier: Apache-2.0
// The chat page and the board as a person uses them:  node pages.mjs CHROMIUM CHAT_ADDRESS BOARD_ADDRESS FOLDER
// Pictures of both are left in FOLDER.
import assert from "node:assert/strict";
import { openBrowser } from "./browser.mjs";

const [program, chat, board, folder] = process.argv.slice(2);
const page = await openBrowser(program);
const send = (words) => page.ask(`by("text").value = ${JSON.stringify(words)}; by("ask").requestSubmit()`);
const turns = () => page.ask(`[...document.querySelectorAll(".turn")].map((t) => [t.className, t.children[1].textContent, t.lastChild.textContent])`);
const idle = `by("send").textContent === "Send" && document.querySelector(".turn:last-child .foot")?.textContent`;
const set = (id, value) => page.ask(`by("${id}").value = ${JSON.stringify(value)}`);

const checks = {
  async "the chat page knows its models and asks for the key"() {
    await page.open(chat);
    await page.until(`document.querySelector(".turn.error")?.textContent.includes("API key")`);
    await page.ask(`by("key").value = "secret"; by("key").dispatchEvent(new Event("change"))`);
    await page.until(`by("model").options.length > 0`);
    await page.ask(`by("fresh").click()`);
    assert.equal(await page.ask(`by("temperature").placeholder`), "0", "what holds where nobody says it");
  },

  async "markdown is shown as what it means, and never as HTML"() {
    const html = (text) => page.ask(`node("div", ...markdown(${JSON.stringify(text)})).innerHTML`);
    assert.equal(await html("# A **b**\n\nsome `code` and *more*"), "<h1>A <b>b</b></h1><p>some <code>code</code> and <i>more</i></p>");
    assert.equal(await html("- one\n- two"), "<ul><li>one</li><li>two</li></ul>");
    assert.equal(await html("3. one"), '<ol start="3"><li>one</li></ol>');
    assert.match(await html("```py\nx = 1\n```\nafter"), /^<pre><code>x = 1<\/code><button[^>]*>copy<\/button><\/pre><p>after<\/p>$/);
    assert.match(await html("|a|b|\n|-|-|\n|1|2|"), /<table><tr><th>a<\/th><th>b<\/th><\/tr><tr><td>1<\/td><td>2<\/td><\/tr><\/table>/);
    assert.equal(await html("<img src=x onerror=alert(1)>"), "<p>&lt;img src=x onerror=alert(1)&gt;</p>");
    assert.equal(await html("2 * 3 * 4 and a_b_c"), "<p>2 * 3 * 4 and a_b_c</p>");
    assert.match(await html("[a](javascript:alert(1)) [b](https://x.y)"), /\[a\]\(javascript.*<a href="https:\/\/x.y"/);
  },

  async "boxes are drawn in the picture's own pixels; a text model is shown none"() {
    const drawn = (boxes) => page.ask(`framed({ url: "data:image/gif;base64,R0lGODlhAQABAAAAACw=", width: 60, height: 40 }, ${JSON.stringify(boxes)}).innerHTML`);
    assert.doesNotMatch(await drawn([]), /svg/);
    assert.match(await drawn([[10, 5, 30, 25]]), /viewBox="0 0 60 40".*<rect x="10" y="5" width="20" height="20"><\/rect><\/svg>$/);
    assert.match(await drawn([[0, 0, 6, 8], [1, 1, 3, 4]]), /<text [^>]*>1<\/text>.*<text [^>]*>2<\/text>/);
    assert.equal(await page.ask(`by("attach").hidden`), true);
    assert.deepEqual(await page.ask(`messages = [{ role: "user", content: "what?", picture: { url: "data:x", width: 1, height: 1 } }], request().messages`),
      [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:x" } }, { type: "text", text: "what?" }] }]);
    assert.equal(await page.ask(`request().boxes`), true);
    await page.ask(`by("fresh").click()`);
  },

  async "an answer comes in pieces, with its speed"() {
    await set("max_tokens", "40"), await set("temperature", "0");
    await send("Say something.");
    await page.until(idle);
    const [asked, answered] = await turns();
    assert.deepEqual(asked.slice(0, 2), ["turn user", "Say something."]);
    assert.equal(answered[0], "turn assistant");
    assert.ok(answered[1].length > 0);
    assert.match(answered[2], /40 tokens · [0-9.]+ tokens\/s · first after/);
  },

  async "the same comes at once where it is not streamed"() {
    const before = (await turns())[1][1];
    await page.ask(`by("fresh").click(); by("stream").checked = false`);
    await send("Say something.");
    await page.until(idle);
    assert.equal((await turns())[1][1], before);
    await page.ask(`by("stream").checked = true`);
  },

  async "sampling and the system prompt act"() {
    const before = (await turns())[1][1];
    for (const [id, value] of [["temperature", "1.5"], ["seed", "3"]]) await set(id, value);
    await page.ask(`by("fresh").click()`);
    await send("Say something.");
    await page.until(idle);
    assert.notEqual((await turns())[1][1], before);
    await set("temperature", "0"), await set("system", "Be brief.");
    await page.ask(`by("fresh").click()`);
    await send("Say something.");
    await page.until(idle);
    assert.notEqual((await turns())[1][1], before);
  },

  async "an answer can be stopped, and the talk goes on"() {
    await set("max_tokens", "900");
    await send("And more?");
    await page.until(`by("send").textContent === "Stop" && document.querySelector(".turn:last-child").children[1].textContent`);
    await page.ask(`by("ask").requestSubmit()`);
    await page.until(idle);
    assert.match((await turns()).at(-1)[2], /stopped/);
    await set("max_tokens", "24");
    await send("Go on.");
    await page.until(idle);
    assert.match((await turns()).at(-1)[2], /24 tokens/);
    await page.photograph(`${folder}/chat.png`);
  },

  async "an answer can be had again"() {
    const before = (await turns()).length;
    await page.ask(`document.querySelector(".again").click()`);
    await page.until(idle);
    assert.equal((await turns()).length, before, "in the place of the last one");
    assert.match((await turns()).at(-1)[2], /24 tokens/);
  },

  async "on a phone the settings are folded away"() {
    await page.size(390, 800);
    await page.until(`!by("panel").open`);
    await page.photograph(`${folder}/chat_phone.png`);
    await page.size(1280, 800);
    await page.until(`by("panel").open`);
  },

  async "what the server refuses is said"() {
    await set("key", "wrong");
    await send("More.");
    await page.until(`document.querySelector(".turn.error")`);
    assert.match((await turns()).at(-1)[1], /API key/i);
  },

  async "the board draws the curves of a run and shows its answers"() {
    await page.open(board);
    await page.until(`document.querySelectorAll("#charts figure polyline").length > 0`);
    const captions = await page.ask(`[...document.querySelectorAll("figcaption")].map((c) => c.firstChild.textContent)`);
    for (const wanted of ["loss", "grad_norm"]) assert.ok(captions.includes(wanted), `${captions}`);
    assert.match(await page.ask(`document.querySelector(".run").textContent`), /ended/);
    await page.ask(`document.querySelector(".run input").click()`);
    await page.until(`document.querySelectorAll("#charts figure").length === 0 && !document.getElementById("empty").hidden`);
    await page.ask(`document.querySelector(".run input").click()`);
    await page.until(`document.querySelectorAll("#charts figure").length > 0`);
    await page.photograph(`${folder}/board.png`);
  },

  async "no script fails on the way"() {
    assert.deepEqual(page.complaints, []);
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok      ${name}`);
  } catch (error) {
    ++failed;
    console.log(`FAILED  ${name}: ${error.stack ?? error}`);
  }
}
await page.close();
process.exit(failed ? 1 : 0);
