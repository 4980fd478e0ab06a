// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"os"
	"testing"
	"time"
)

// X2, S9: a gate without a question whose last process has gone ends, and does not ask the
// kernel for one more: before Linux 6.11 that sleeps for ever, and with it the screen's stop.
// A pipe without writers tells the same by poll(2) as such a listener does.
func TestX2GateEndsWithItsLastProcess(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if asked, abandoned := look(int(r.Fd())); asked || abandoned {
		t.Errorf("open: asked %v, abandoned %v", asked, abandoned)
	}
	if _, err := w.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}
	if asked, abandoned := look(int(r.Fd())); !asked || abandoned {
		t.Errorf("with a question: asked %v, abandoned %v", asked, abandoned)
	}
	w.Close()
	if asked, abandoned := look(int(r.Fd())); !asked || abandoned {
		t.Errorf("with a last question: asked %v, abandoned %v", asked, abandoned)
	}
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if asked, abandoned := look(int(r.Fd())); asked || !abandoned {
		t.Errorf("without writers: asked %v, abandoned %v", asked, abandoned)
	}
	over := make(chan struct{})
	gate := &execGate{file: r}
	go func() { gate.run(); close(over) }()
	select {
	case <-over:
	case <-time.After(30 * time.Second):
		t.Fatal("the gate did not end")
	}
}
