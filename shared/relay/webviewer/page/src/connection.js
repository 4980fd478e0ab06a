// SPDX-License-Identifier: MPL-2.0

import RFB from "@novnc/novnc";
import { Channel } from "./channel.js";
import { Again, delay, ending } from "./words.js";

// Connection is the way to one screen. It begins anew when it broke, with what the relay
// gave it for that; the person keeps the screen meanwhile (rule L9).
export class Connection {
  // handlers: told(message), changed(state), named(name).
  constructor(target, handlers, ticket) {
    this.target = target;
    this.handlers = handlers;
    this.secret = ticket; // empty where the page's door knows the viewer
    this.layout = "";
    this.attempt = 0;
    this.rfb = null;
    this.channel = null;
    this.timer = 0;
    this.again = Again.soon;
  }

  open() {
    clearTimeout(this.timer);
    const url = new URL("view", document.baseURI);
    url.protocol = url.protocol.replace("http", "ws");
    if (this.layout) {
      url.searchParams.set("layout", this.layout);
    }
    const protocols = ["botscreen"];
    if (this.secret) {
      protocols.push(`ticket.${this.secret}`);
    }
    const socket = new WebSocket(url, protocols);
    const channel = new Channel(socket, (message) => this.#told(channel, message));
    this.channel = channel;
    this.rfb = new RFB(this.target, channel);
    this.rfb.viewOnly = true; // until the lease says otherwise
    this.rfb.scaleViewport = this.scale ?? true;
    this.rfb.showDotCursor = true;
    this.rfb.addEventListener("desktopname", (event) => this.handlers.named(event.detail.name));
    this.rfb.addEventListener("connect", () => {
      this.attempt = 0;
      this.handlers.changed({ state: "up" });
    });
    socket.addEventListener("close", (event) => this.#ended(channel, event.code, event.reason));
    this.handlers.changed({ state: "connecting" });
  }

  #told(channel, message) {
    if (channel !== this.channel) {
      return;
    }
    if (message.type === "hello" && message.renewal) {
      this.secret = message.renewal;
    }
    this.handlers.told(message);
  }

  #ended(channel, code, reason) {
    if (channel !== this.channel) {
      return; // a later one is there
    }
    this.channel = null;
    this.rfb = null;
    const end = this.reopening ? { text: "", again: Again.soon } : ending(code, reason);
    this.again = end.again;
    if (this.reopening) {
      this.reopening = false;
      this.open();
      return;
    }
    let wait = 0;
    if (end.again === Again.soon || end.again === Again.slowly) {
      wait = delay(this.attempt++, end.again, Math.random());
      this.timer = setTimeout(() => this.open(), wait);
    }
    this.handlers.changed({ state: wait > 0 ? "waiting" : "over", code, text: end.text, button: end.button, wait });
  }

  // reopen connects anew at once, such as with another layout.
  reopen() {
    if (this.channel === null) {
      this.attempt = 0;
      this.open();
      return;
    }
    this.reopening = true;
    this.channel.close();
  }

  say(operation) {
    this.channel?.say(operation);
  }

  leave() {
    clearTimeout(this.timer);
    this.channel?.leave();
  }

  send(keysym, code, down) {
    this.rfb?.sendKey(keysym, code, down);
  }
}
