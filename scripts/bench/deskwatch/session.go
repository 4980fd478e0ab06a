// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/botscreen/botscreen/driver/desktop"
)

// sessionCommand makes us a session with one desktop, "ours".
const sessionCommand = "session"

// sessionOptions are the desktop.Options that differ from run to run.
type sessionOptions struct {
	Display                int
	Home, RuntimeDir, XDir string
	Env                    []string
}

// runSession reads the desktop's options from stdin, starts it, and stops it at
// TERM.
func runSession() error {
	if err := desktop.PrepareProcess(); err != nil {
		return err
	}
	var given sessionOptions
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		return fmt.Errorf("read options: %w", err)
	}
	o := desktop.Options{
		Display: given.Display, WidthPx: widthPx, HeightPx: heightPx,
		Home: given.Home, RuntimeDir: given.RuntimeDir, XDir: given.XDir, Env: given.Env,
		Log:        os.Stderr,
		Executable: "/bin/true", // the self-test comes after ready and is not measured
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	reaper := desktop.NewReaper()
	go func() { _ = reaper.Run(context.Background()) }()
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	d, err := desktop.Start(limited, o, reaper)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return d.Stop(context.Background(), 5*time.Second)
	case <-d.Done():
		return d.Err()
	}
}
