// SPDX-License-Identifier: MPL-2.0

// A script for any browser with a debugging port, to be run against `botscreen cdp`.
import { chromium } from "playwright-core";

const site = process.env.SITE;
const browser = await chromium.connectOverCDP(process.env.ADDRESS);
const context = browser.contexts()[0];
const page = context.pages().find((p) => p.url().startsWith(site));
const before = (await context.cookies(site)).find((c) => c.name === "login")?.value;
await page.locator("#as").fill("playwright");
await Promise.all([page.waitForURL("**/login?as=playwright"), page.locator("#as").press("Enter")]);
const picture = await page.screenshot();
const other = await context.newPage();
await other.goto(site);
const words = await other.textContent("h1");
await other.close();
console.log(JSON.stringify({ before, words, picture: picture.length, after: (await context.cookies(site)).find((c) => c.name === "login")?.value }));
await browser.close(); // which disconnects
