// SPDX-License-Identifier: MPL-2.0

// botscreen is the command for people and for agents: it runs the embedded agent, runs
// jobs, and finds, shows and stops screens on any Nomad cluster.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/botscreen/botscreen/shared/devagent/logmon"
)

func main() {
	// The agent starts this program once per task; it must be small and quick then.
	if len(os.Args) > 1 && os.Args[1] == logmonCommand {
		os.Exit(logmon.Main(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, errs: os.Stderr})
	stop()
	os.Exit(code)
}

// logmonCommand is the hidden command of a log collector.
const logmonCommand = "logmon"

// streams are what a command reads and writes.
type streams struct {
	in        io.Reader
	out, errs io.Writer
}
