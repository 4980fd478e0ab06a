// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/botscreen/botscreen/shared/relay/ticket"
)

// BenchmarkTransport measures targets 6 and 7: the relay beside the barest loop over
// the same library and beside websockify, in turns. Source and viewer are a process of
// their own, so that the CPU seconds are the relay's alone. A ratio is the median of
// the rounds' ratios.
func BenchmarkTransport(b *testing.B) {
	p := startPeer(b)
	rows := []transport{bareTransport(b, p), relayTransport(b, p)}
	if w, err := websockifyTransport(b, p); err == nil {
		rows = append(rows, w)
	} else {
		b.Logf("without websockify (its recorded row is in the design's performance page): %v", err)
	}
	const rounds = 7
	results := make([][]result, len(rows))
	for b.Loop() {
		for range rounds {
			for i, row := range rows {
				results[i] = append(results[i], row.measure(b, p))
			}
		}
	}
	for i, row := range rows {
		r := results[i]
		b.Logf("%-10s %5.0f MB/s  %.2f CPU s/GB  p50 %3.0f µs  p99 %4.0f µs", row.name,
			median(r, func(r result) float64 { return r.Rate }), median(r, func(r result) float64 { return r.CPU }),
			median(r, func(r result) float64 { return r.P50 }), median(r, func(r result) float64 { return r.P99 }))
	}
	for i, name := range []string{"bare", "", "websockify"} {
		if name == "" || i >= len(rows) {
			continue
		}
		report(b, "x-bytes/"+name, results[1], results[i], func(r result) float64 { return r.Rate })
		report(b, "x-cpu/"+name, results[1], results[i], func(r result) float64 { return r.CPU })
		report(b, "x-p50/"+name, results[1], results[i], func(r result) float64 { return r.P50 })
		report(b, "x-p99/"+name, results[1], results[i], func(r result) float64 { return r.P99 })
	}
}

func median(list []result, of func(result) float64) float64 {
	var values []float64
	for _, r := range list {
		values = append(values, of(r))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func report(b *testing.B, unit string, ours, theirs []result, of func(result) float64) {
	var ratios []float64
	for i := range ours {
		ratios = append(ratios, of(ours[i])/of(theirs[i]))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], unit)
}

// result is one round of one row.
type result struct {
	Rate     float64 // MB/s
	CPU      float64 // seconds per GB
	P50, P99 float64 // round trip in µs
}

// transport is one row.
type transport struct {
	name  string
	visit func(b *testing.B) visit // where the next viewer goes
	cpu   func() time.Duration     // of the process between
}

// visit is what the peer's viewer is asked to do.
type visit struct {
	URL          string
	Subprotocols []string
	MiB          int
	Trips        int
}

func (t transport) measure(b *testing.B, p *peer) result {
	b.Helper()
	v := t.visit(b)
	v.MiB = 512
	before := t.cpu()
	r := p.ask(b, v)
	r.CPU = (t.cpu() - before).Seconds() / (float64(v.MiB) / 1000)
	v = t.visit(b)
	v.Trips = 2000
	trips := p.ask(b, v)
	r.P50, r.P99 = trips.P50, trips.P99
	return r
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bareTransport is a loop with 64 KiB reads and nothing else.
func bareTransport(b *testing.B, p *peer) transport {
	url := serveHTTP(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{ProtocolBinary}})
		if err != nil {
			return
		}
		defer conn.CloseNow()
		upstream, err := net.Dial("unix", p.socket)
		if err != nil {
			return
		}
		defer upstream.Close()
		go func() {
			defer upstream.Close()
			for {
				_, frame, err := conn.Reader(r.Context())
				if err != nil {
					return
				}
				if _, err := io.Copy(upstream, frame); err != nil {
					return
				}
			}
		}()
		buf := make([]byte, 64<<10)
		for {
			n, err := upstream.Read(buf)
			if err != nil || conn.Write(r.Context(), websocket.MessageBinary, buf[:n]) != nil {
				return
			}
		}
	}))
	return transport{"bare", func(*testing.B) visit { return visit{URL: url, Subprotocols: []string{ProtocolBinary}} }, ownCPU}
}

// relayTransport is the relay with its gate, its lease and a human who holds.
func relayTransport(b *testing.B, p *peer) transport {
	w := newWorld(b, func(o *Options) {
		o.Dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", p.socket)
		}
	})
	w.take(b, "viewer")
	url := serveHTTP(b, w.Relay)
	n := 0
	return transport{"relay", func(b *testing.B) visit {
		n++
		m, err := w.tickets.Mint(strconv.Itoa(n), ticket.Grant{Viewer: "viewer", Mode: ticket.Control})
		if err != nil {
			b.Fatal(err)
		}
		return visit{URL: url, Subprotocols: []string{ProtocolBinary, ProtocolTicket + string(m.Secret)}}
	}, ownCPU}
}

func serveHTTP(b *testing.B, handler http.Handler) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go server.Serve(ln)
	b.Cleanup(func() { server.Close() })
	return "ws://" + ln.Addr().String()
}

// websockifyTransport is Debian's.
func websockifyTransport(b *testing.B, p *peer) (transport, error) {
	program, err := exec.LookPath("websockify")
	if err != nil {
		return transport{}, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return transport{}, err
	}
	addr := ln.Addr().String()
	ln.Close()
	cmd := exec.Command(program, "--unix-target="+p.socket, addr)
	if err := cmd.Start(); err != nil {
		return transport{}, err
	}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for deadline := time.Now().Add(20 * time.Second); ; {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			return transport{}, err
		}
	}
	return transport{"websockify", func(*testing.B) visit {
		return visit{URL: "ws://" + addr, Subprotocols: []string{ProtocolBinary}}
	}, func() time.Duration { return familyCPU(cmd.Process.Pid) }}, nil
}

// familyCPU is what a process and its children, also those that ended, have used.
func familyCPU(pid int) time.Duration {
	var ticks int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		own := path == fmt.Sprintf("/proc/%d/stat", pid)
		if !own && fields[1] != strconv.Itoa(pid) {
			continue
		}
		counted := fields[11:13] // utime, stime
		if own {
			counted = fields[11:15] // and those of children that were waited for
		}
		for _, field := range counted {
			n, _ := strconv.Atoi(field)
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
