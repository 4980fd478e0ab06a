// SPDX-License-Identifier: MPL-2.0

// A script for any browser with a debugging port, to be run against `botscreen cdp`.
import puppeteer from "puppeteer-core";

const site = process.env.SITE;
const browser = await puppeteer.connect({ browserWSEndpoint: process.env.WEBSOCKET, defaultViewport: null });
const pages = await browser.pages();
const page = pages.find((p) => p.url().startsWith(site));
const login = async () => (await browser.cookies()).find((c) => c.name === "login")?.value;
const before = await login();
await page.locator("#as").fill("puppeteer");
await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
const picture = await page.screenshot();
const words = await page.$eval("h1", (e) => e.textContent);
console.log(JSON.stringify({ before, words, picture: picture.length, after: await login() }));
await browser.disconnect();
