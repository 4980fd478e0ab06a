// SPDX-License-Identifier: MPL-2.0

// Keys that a browser keeps for itself, and text as keys. Keysyms are those of X.Org's
// keysymdef.h, codes those of UI Events.

const control = { keysym: 0xffe3, code: "ControlLeft" };
const alt = { keysym: 0xffe9, code: "AltLeft" };
const superKey = { keysym: 0xffeb, code: "MetaLeft" };
const key = (name, keysym, code) => ({ name, keys: [{ keysym, code }] });

// sticky ones stay down until they are pressed again.
export const sticky = [
  { name: "Ctrl", ...control },
  { name: "Alt", ...alt },
  { name: "Super", ...superKey },
];

export const special = [
  { name: "Ctrl+Alt+Del", keys: [control, alt, { keysym: 0xffff, code: "Delete" }] },
  key("Esc", 0xff1b, "Escape"),
  key("Tab", 0xff09, "Tab"),
  key("Enter", 0xff0d, "Enter"),
  key("Del", 0xffff, "Delete"),
  key("Home", 0xff50, "Home"),
  key("End", 0xff57, "End"),
  key("PgUp", 0xff55, "PageUp"),
  key("PgDn", 0xff56, "PageDown"),
  key("←", 0xff51, "ArrowLeft"),
  key("↑", 0xff52, "ArrowUp"),
  key("→", 0xff53, "ArrowRight"),
  key("↓", 0xff54, "ArrowDown"),
  key("Print", 0xff61, "PrintScreen"),
  { name: "Alt+Tab", keys: [alt, { keysym: 0xff09, code: "Tab" }] },
  { name: "Alt+F4", keys: [alt, { keysym: 0xffc1, code: "F4" }] },
  ...Array.from({ length: 12 }, (_, i) => key(`F${i + 1}`, 0xffbe + i, `F${i + 1}`)),
];

// press presses keys in order and releases them in the opposite one.
export function press(send, keys) {
  for (const { keysym, code } of keys) {
    send(keysym, code, true);
  }
  for (const { keysym, code } of keys.slice().reverse()) {
    send(keysym, code, false);
  }
}

// keysymOf is the keysym of one character, 0 where there is none.
export function keysymOf(character) {
  const point = character.codePointAt(0);
  switch (point) {
    case 0x0a:
    case 0x0d:
      return 0xff0d;
    case 0x09:
      return 0xff09;
    case 0x08:
      return 0xff08;
  }
  if (point < 0x20 || (point >= 0x7f && point < 0xa0) || (point >= 0xd800 && point < 0xe000)) {
    return 0;
  }
  return point < 0x100 ? point : 0x01000000 + point;
}

// type sends text as keys, without codes: which key makes a character is the screen's
// to know.
export function type(send, text) {
  for (const character of text.replaceAll("\r\n", "\n")) {
    const keysym = keysymOf(character);
    if (keysym !== 0) {
      send(keysym, null, true);
      send(keysym, null, false);
    }
  }
}
