// SPDX-License-Identifier: MPL-2.0

// Channel is the viewer's WebSocket as noVNC is given it: binary frames carry RFB and
// are noVNC's, text frames carry the lease and go to told. When noVNC closes it, which
// it does at every fault, that is no word of a person: only leave says that somebody
// left, and hands the screen back (rule L9).
export class Channel {
  onopen = null;
  onmessage = null;
  onerror = null;
  onclose = null;
  binaryType = "arraybuffer";

  #socket;

  constructor(socket, told) {
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = (event) => this.onopen?.(event);
    socket.onerror = (event) => this.onerror?.(event);
    socket.onclose = (event) => this.onclose?.(event);
    socket.onmessage = (event) => {
      if (typeof event.data === "string") {
        told(parse(event.data));
      } else {
        this.onmessage?.(event);
      }
    };
  }

  get readyState() {
    return this.#socket.readyState;
  }

  get protocol() {
    return this.#socket.protocol;
  }

  send(data) {
    this.#socket.send(data);
  }

  // say sends one operation of the lease's protocol.
  say(operation) {
    if (this.#socket.readyState === WebSocket.OPEN) {
      this.#socket.send(JSON.stringify(operation));
    }
  }

  // close carries no code, which the relay takes for a connection that broke.
  close() {
    this.#socket.close();
  }

  leave() {
    this.#socket.close(1000);
  }
}

function parse(text) {
  try {
    const message = JSON.parse(text);
    return message !== null && typeof message === "object" ? message : {};
  } catch {
    return {};
  }
}
