// SPDX-License-Identifier: MPL-2.0

package memory

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/driver/slot"
)

// TestMain lets the test binary play another plugin process on the same node: it takes promises and passes as its
// standard input says, one word a line, and answers each with a line.
func TestMain(m *testing.M) {
	if node := os.Getenv("MEMORY_NODE"); node != "" {
		os.Exit(otherProcess(node))
	}
	os.Exit(m.Run())
}

func otherProcess(node string) int {
	dir, err := slot.Open(node)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	available, _ := strconv.Atoi(os.Getenv("MEMORY_AVAILABLE"))
	slots, _ := strconv.Atoi(os.Getenv("MEMORY_SLOTS"))
	ledger := &Ledger{Node: dir, Read: func(context.Context) Reading { return availableReading(available) }}
	gate := &Gate{Node: dir, Slots: slots}
	var pass *Pass
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var err error
		switch in.Text() {
		case "admit":
			_, err = ledger.Admit(context.Background(), 1000, 300)
		case "enter":
			pass, err = gate.Enter(context.Background(), func() { fmt.Println("queued") })
		case "leave":
			pass.Release()
		}
		if err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("ok")
		}
	}
	return 0
}

func availableReading(mb int) Reading {
	return Reading{Known: true, AvailableBytes: uint64(mb) * MiB}
}

// other is such a process.
type other struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func startOther(t *testing.T, node *slot.Dir, availableMB, slots int) *other {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "MEMORY_NODE="+node.Path(),
		fmt.Sprintf("MEMORY_AVAILABLE=%d", availableMB), fmt.Sprintf("MEMORY_SLOTS=%d", slots))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o := &other{t, cmd, in, bufio.NewReader(out)}
	t.Cleanup(o.kill)
	return o
}

func (o *other) kill() {
	_ = o.cmd.Process.Kill()
	_ = o.cmd.Wait()
}

func (o *other) send(word string) {
	o.t.Helper()
	if _, err := fmt.Fprintln(o.in, word); err != nil {
		o.t.Fatal(err)
	}
}

func (o *other) want(line string) {
	o.t.Helper()
	got, err := o.out.ReadString('\n')
	if err != nil || strings.TrimSpace(got) != line {
		o.t.Fatalf("the other process says %q, %v, want %q", got, err, line)
	}
}

func openNode(t *testing.T) *slot.Dir {
	t.Helper()
	parent, err := os.MkdirTemp(t.TempDir(), "run")
	if err != nil {
		t.Fatal(err)
	}
	node, err := slot.Open(filepath.Join(parent, "node"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	return node
}
