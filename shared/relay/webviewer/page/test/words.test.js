// SPDX-License-Identifier: MPL-2.0

import assert from "node:assert/strict";
import test from "node:test";
import { keysymOf, press, type } from "../src/keys.js";
import { Again, delay, ending, holder, wanted } from "../src/words.js";

test("L9: a broken connection comes back by itself, a person who left does not", () => {
  for (const code of [1001, 1005, 1006, 1011, 1012]) {
    assert.equal(ending(code, "").again, Again.soon, `code ${code}`);
  }
  for (const code of [1000, 4000, 4002]) {
    assert.equal(ending(code, "").again, Again.asked, `code ${code}`);
    assert.ok(ending(code, "").button);
  }
});

test("R2: each of the relay's codes has words of its own", () => {
  const codes = [1000, 1003, 1006, 1013, 4000, 4001, 4002, 4003, 4401, 4403];
  assert.equal(new Set(codes.map((code) => ending(code, "").text)).size, codes.length);
  assert.equal(ending(4401, "").again, Again.never);
  assert.equal(ending(4003, "").again, Again.slowly);
  assert.equal(ending(4001, "the screen is gone").text, "The screen is gone.");
});

test("the wait grows to 15 s, and never by chance alone", () => {
  assert.deepEqual([0, 1, 2, 9].map((n) => delay(n, Again.soon, 1)), [500, 1000, 2000, 15000]);
  assert.deepEqual([0, 9].map((n) => delay(n, Again.soon, 0)), [250, 7500]);
  assert.equal(delay(7, Again.slowly, 0), 4000);
});

test("L13: what the agent wants, until it is too late", () => {
  const until = "2026-01-02T03:04:05Z";
  const late = Date.parse(until);
  assert.match(wanted({ wanted: true, reason: "a code", until }, late - 1), /until .*: “a code”$/);
  assert.equal(wanted({ wanted: true, reason: "a code", until }, late), "");
  assert.equal(wanted({ wanted: true, reason: "a code" }, late), "The agent asks for a person: “a code”");
  assert.equal(wanted({ wanted: false, reason: "" }, late), "");
});

test("who holds", () => {
  const since = "2026-01-02T03:04:05Z";
  const say = (lease, holding = false) => holder({ lease: { since, epoch: 1, ...lease }, holding });
  assert.match(say({ holder: "agent" }), /^The agent controls/);
  assert.match(say({ holder: "human", viewer: "0123456789ab", reason: "a code" }), /0123456789ab.*“a code”/);
  assert.match(say({ holder: "human", viewer: "0123456789ab", away_since: since }), /without handing it back/);
  assert.match(say({ holder: "human", reason: "unreadable" }), /cannot be told/);
  assert.match(say({ holder: "human", viewer: "0123456789ab" }, true), /^You control/);
});

test("text becomes keysyms of its characters", () => {
  const keys = [];
  type((keysym, code, down) => keys.push([keysym, code, down]), "aä€漢😀\r\n\u0000\t");
  const down = keys.filter(([, , down]) => down).map(([keysym]) => keysym);
  assert.deepEqual(down, [0x61, 0xe4, 0x010020ac, 0x01006f22, 0x0101f600, 0xff0d, 0xff09]);
  assert.ok(keys.every(([, code]) => code === null));
  assert.equal(keysymOf("\u007f"), 0);
});

test("a chord is released in the opposite order", () => {
  const seen = [];
  press((keysym, code, down) => seen.push(`${down ? "+" : "-"}${code}`), [{ keysym: 1, code: "A" }, { keysym: 2, code: "B" }]);
  assert.deepEqual(seen, ["+A", "+B", "-B", "-A"]);
});
