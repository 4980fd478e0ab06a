// SPDX-License-Identifier: MPL-2.0

// Builds the page into one document, so that its policy allows exactly this script and
// this style by their hashes and nothing else: ../dist/page.html.gz, and the policy in
// ../dist/policy.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const dist = new URL("../dist/", import.meta.url);
const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");

const result = await build({
  entryPoints: [new URL("src/main.js", import.meta.url).pathname],
  bundle: true,
  write: false,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "none",
  logLevel: "warning",
  banner: { js: licences() },
});
const script = result.outputFiles[0].text.trim();
const style = read("src/style.css").trim();
if (/<\/script/i.test(script) || /<\/style/i.test(style)) {
  throw new Error("the script or the style would end its own element");
}

// A function as the replacement: a string would have its dollar signs read.
const page = read("src/page.html")
  .replace("{{style}}", () => style)
  .replace("{{script}}", () => script);

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  "img-src data:", // tiles of the picture and the shape of the cursor
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

mkdirSync(dist, { recursive: true });
writeFileSync(new URL("page.html.gz", dist), gzipSync(page, { level: 9 }));
writeFileSync(new URL("policy", dist), policy + "\n");
console.log(`page: ${page.length} bytes, ${gzipSync(page, { level: 9 }).length} compressed`);

// The notices that go wherever the code goes.
function licences() {
  const novnc = JSON.parse(read("node_modules/@novnc/novnc/package.json"));
  const pako = read("node_modules/@novnc/novnc/vendor/pako/LICENSE").trim();
  return `/* Contains noVNC ${novnc.version}, MPL-2.0, ${novnc.homepage}, and pako:\n${pako}\n*/`;
}
