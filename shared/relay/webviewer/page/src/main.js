// SPDX-License-Identifier: MPL-2.0

import { Connection } from "./connection.js";
import { press, special, sticky, type } from "./keys.js";
import { touchKeyboard } from "./touch.js";
import { clock, holder, wanted } from "./words.js";

const $ = (id) => document.getElementById(id);

// The ticket comes behind the #, which no server and no log sees, and does not stay in
// the address (SEC-07).
const ticket = new URLSearchParams(location.hash.slice(1)).get("ticket") ?? "";
if (location.hash) {
  history.replaceState(null, "", location.pathname);
}

let holding = false;
let canTake = false;
let hello = {};

const connection = new Connection($("picture"), { told, changed, named }, ticket);

function told(message) {
  switch (message.type) {
    case "hello":
      hello = message;
      canTake = message.mode === "control";
      $("layout-text").textContent = `My keyboard has the screen’s layout (${message.layout || "unknown"})`;
      $("layout").disabled = !message.layout;
      break;
    case "lease":
      leased(message);
      break;
    case "wanted":
      wants(message);
      break;
    case "asked":
      notice(`Another person asks for the screen${quoted(message.reason)} and gets it at ${clock(message.until)} unless you refuse.`, "Refuse", () => connection.say({ op: "deny" }));
      break;
    case "asking":
      notice(`The person in control has been asked and has until ${clock(message.until)} to refuse.`);
      break;
    case "denied":
      notice("The person in control refused to give up the screen.");
      break;
    case "clipboard":
      copied(message.text);
      break;
    case "focus":
      focusMoved(message);
      break;
    case "unsure":
      notice(message.message, "Hand back all the same", () => connection.say({ op: message.op }));
      break;
    case "error":
      notice(`${operations[message.op] ?? "This"} did not work: ${message.message}.`);
      break;
  }
}

const operations = { take: "Taking over", release: "Handing back", paste: "The paste", deny: "Refusing", end_program: "Ending the program", reload: "Loading the page again", fresh_window: "A fresh window" };

function quoted(reason) {
  return reason ? ` (“${reason}”)` : "";
}

let wish = { wanted: false };
let wishOver = 0; // the timer that ends it

function wants(message) {
  wish = message;
  clearTimeout(wishOver);
  showWish();
  if (wish.wanted && wish.until) {
    wishOver = setTimeout(showWish, Date.parse(wish.until) - Date.now());
  }
}

function showWish() {
  const text = wanted(wish, Date.now());
  $("wanted").textContent = text;
  $("wanted").hidden = text === "";
}

// focusMoved shows that what is typed may go elsewhere than the person thinks (X44). The
// words are the screen's.
function focusMoved({ program, title, grabbed }) {
  if (!holding) {
    return;
  }
  if (grabbed) {
    notice("A program on the screen has grabbed the keyboard: it gets what you type, whichever window you see in front.");
    return;
  }
  const name = `${program || "A program"}${quoted(title)}`;
  notice(`${name} came to the front without you, and gets what you type.`, "End that program", () => connection.say({ op: "end_program" }));
}

function leased(message) {
  const had = holding;
  holding = message.holding === true;
  $("holder").textContent = holder(message);
  if (connection.rfb) {
    connection.rfb.viewOnly = !holding;
  }
  if (holding && !had) {
    closeNotice();
    connection.rfb?.focus({ preventScroll: true });
  }
  if (!holding) {
    unstick();
    closeCopy();
  }
  buttons();
}

// buttons shows what may be done now.
function buttons() {
  const up = connection.rfb !== null;
  document.body.dataset.holding = String(holding);
  $("take").hidden = !canTake || holding;
  $("release").hidden = !holding;
  for (const id of ["take", "release"]) {
    $(id).disabled = !up;
  }
  for (const element of [$("paste"), $("touch"), $("reload"), $("fresh"), ...$("keyboard").querySelectorAll("button")]) {
    element.disabled = !up || !holding;
  }
}

function changed({ state, code, text, button, wait }) {
  $("state").dataset.state = state;
  document.body.dataset.code = code ?? "";
  const keeps = holding ? " You still control the screen; it waits for you." : "";
  switch (state) {
    case "connecting":
      $("state").textContent = "Connecting…";
      break;
    case "up":
      $("state").textContent = "Connected";
      cover("");
      break;
    case "waiting":
      $("state").textContent = "Not connected";
      cover(`${text}${code === 4000 ? "" : keeps} Trying again in ${Math.ceil(wait / 1000)} s.`, "Try now");
      break;
    case "over":
      $("state").textContent = "Ended";
      if (code === 1000 || code === 4000) {
        holding = false;
      }
      cover(text, button);
      break;
  }
  buttons();
}

function named(name) {
  $("name").textContent = name;
  document.title = `${name} · screen`;
}

function cover(text, button) {
  $("over").hidden = text === "";
  $("over-text").textContent = text;
  $("over-action").hidden = !button;
  $("over-action").textContent = button ?? "";
}

let action = null;

function notice(text, label, act) {
  $("notice-text").textContent = text;
  action = act ?? null;
  $("notice-action").textContent = label ?? "";
  $("notice-action").hidden = !act;
  $("notice").hidden = false;
}

function closeNotice() {
  $("notice").hidden = true;
  action = null;
}

$("notice-close").addEventListener("click", closeNotice);
$("notice-action").addEventListener("click", () => {
  action?.();
  closeNotice();
});
$("over-action").addEventListener("click", () => connection.reopen());
$("leave").addEventListener("click", () => connection.leave());
$("release").addEventListener("click", () => connection.say({ op: "release" }));

for (const [id, op] of [["reload", "reload"], ["fresh", "fresh_window"]]) {
  $(id).addEventListener("click", () => {
    connection.say({ op });
    $("browser").open = false;
    connection.rfb?.focus({ preventScroll: true });
  });
}

$("take").addEventListener("click", () => {
  $("take-reason").value = "";
  $("take-dialog").returnValue = "";
  $("take-dialog").showModal();
  $("take-reason").focus();
});
// Enter in the field is the first button's by itself, which cancels.
confirmWithEnter($("take-reason"), $("take-confirm"));
$("take-dialog").addEventListener("close", () => {
  if ($("take-dialog").returnValue === "take") {
    connection.say({ op: "take", reason: $("take-reason").value });
  }
});

function confirmWithEnter(field, button) {
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      button.click();
    }
  });
}

$("paste").addEventListener("click", () => {
  $("paste-text").value = "";
  $("paste-dialog").returnValue = "";
  $("paste-clipboard").disabled = !hello.paste;
  $("paste-hint").textContent = hello.paste
    ? "On the clipboard it stays until the next change of hands; paste it there with Ctrl+V."
    : "This screen takes no text for its clipboard; it can be typed.";
  $("paste-dialog").showModal();
  $("paste-text").focus();
});
$("paste-dialog").addEventListener("close", () => {
  const text = $("paste-text").value;
  $("paste-text").value = ""; // it may be a password
  if ($("paste-dialog").returnValue === "clipboard") {
    connection.say({ op: "paste", text });
  } else if ($("paste-dialog").returnValue === "type") {
    type(send, text);
  }
  connection.rfb?.focus({ preventScroll: true });
});

function copied(text) {
  if (!holding || typeof text !== "string" || text === "") {
    return;
  }
  notice("Text was copied on the screen.", "Show", () => {
    $("copy-text").value = text;
    $("copy-dialog").showModal();
    $("copy-text").select();
  });
}

function closeCopy() {
  $("copy-text").value = "";
  $("copy-dialog").close();
}

$("copy-own").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText($("copy-text").value);
    closeCopy();
  } catch {
    $("copy-text").select(); // for the browser's own way to copy
  }
});
$("copy-dialog").addEventListener("close", () => {
  $("copy-text").value = "";
});

const send = (keysym, code, down) => connection.send(keysym, code, down);

const stuck = new Map(); // sticky keys that are down, by their buttons

function keyButton(name, act) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = name;
  button.disabled = true;
  button.addEventListener("click", () => act(button));
  $("keyboard").append(button);
  return button;
}

for (const key of sticky) {
  keyButton(key.name, (button) => {
    const down = !stuck.has(button);
    send(key.keysym, key.code, down);
    button.setAttribute("aria-pressed", String(down));
    if (down) {
      stuck.set(button, key);
    } else {
      stuck.delete(button);
    }
    connection.rfb?.focus({ preventScroll: true });
  }).setAttribute("aria-pressed", "false");
}
for (const { name, keys } of special) {
  keyButton(name, () => {
    press(send, keys);
    connection.rfb?.focus({ preventScroll: true });
  });
}

// unstick forgets the sticky keys: the relay has released them with the change of hands.
function unstick() {
  for (const button of stuck.keys()) {
    button.setAttribute("aria-pressed", "false");
  }
  stuck.clear();
}

const touch = touchKeyboard($("typing"), send);
$("touch").addEventListener("pointerdown", (event) => event.preventDefault()); // or it takes the focus
$("touch").addEventListener("click", () => touch.toggle());
$("typing").addEventListener("focus", () => $("touch").setAttribute("aria-pressed", "true"));
$("typing").addEventListener("blur", () => $("touch").setAttribute("aria-pressed", "false"));

$("scale").addEventListener("click", () => {
  connection.scale = !(connection.scale ?? true);
  $("scale").setAttribute("aria-pressed", String(connection.scale));
  if (connection.rfb) {
    connection.rfb.scaleViewport = connection.scale;
  }
});
$("full").addEventListener("click", () => {
  if (document.fullscreenElement) {
    document.exitFullscreen();
  } else {
    // The bar goes along: the screen must not be able to draw one of its own (X32).
    document.documentElement.requestFullscreen().catch(() => notice("This browser does not allow full screen here."));
  }
});
$("layout").addEventListener("change", () => {
  connection.layout = $("layout").checked ? hello.layout : "";
  connection.reopen();
});

connection.open();
