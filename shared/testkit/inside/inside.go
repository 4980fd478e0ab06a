// SPDX-License-Identifier: MPL-2.0

// Package inside lets tests of this node listen where only the programs of a sandbox can
// connect to.
package inside

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Listen listens on a port of 127.0.0.1 in the network of the process pid, as root. The
// listener keeps that network's namespace, see network_namespaces(7).
func Listen(t testing.TB, pid int) net.Listener {
	t.Helper()
	type outcome struct {
		listener net.Listener
		err      error
	}
	result := make(chan outcome, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := enter(pid); err != nil {
			result <- outcome{err: err}
			return
		}
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		result <- outcome{l, err}
	}()
	r := <-result
	if r.err != nil {
		t.Fatalf("listen in the network of process %d: %v", pid, r.err)
	}
	return r.listener
}

// enter moves this thread into the network of a process.
func enter(pid int) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
}

// Serve is a web site that only the network of the process pid reaches, until the test ends.
func Serve(t testing.TB, pid int, handler http.Handler) *httptest.Server {
	t.Helper()
	server := &httptest.Server{Listener: Listen(t, pid), Config: &http.Server{Handler: handler}}
	server.Start()
	t.Cleanup(server.Close)
	return server
}
