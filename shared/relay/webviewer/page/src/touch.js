// SPDX-License-Identifier: MPL-2.0

import { keysymOf, type } from "./keys.js";

// The field is never empty, or a touch keyboard would send no backspace.
const filler = "\u200b\u200b";

// touchKeyboard makes what is written in a hidden field into keys: a touch keyboard
// sends text, not keys.
export function touchKeyboard(field, send) {
  const reset = () => {
    field.value = filler;
    field.setSelectionRange(filler.length, filler.length);
  };
  const one = (keysym) => {
    send(keysym, null, true);
    send(keysym, null, false);
  };
  field.addEventListener("focus", reset);
  field.addEventListener("compositionend", (event) => {
    type(send, event.data);
    reset();
  });
  field.addEventListener("input", (event) => {
    if (event.isComposing || event.inputType === "insertCompositionText") {
      return;
    }
    if (event.inputType.startsWith("delete")) {
      one(keysymOf("\b"));
    } else if (event.inputType === "insertLineBreak" || event.inputType === "insertParagraph") {
      one(keysymOf("\n"));
    } else {
      type(send, (event.data ?? event.dataTransfer?.getData("text/plain") ?? "").replaceAll("\u200b", ""));
    }
    reset();
  });
  return {
    toggle() {
      if (document.activeElement === field) {
        field.blur();
        return;
      }
      field.focus();
    },
  };
}
