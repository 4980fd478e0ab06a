// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"image"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/action"
)

// turn is one time a probe's calls began to be refused, or admitted.
type turn struct {
	Refused bool  `json:"refused"`
	At      int64 `json:"at_ns"` // by the clock all processes share, CLOCK_MONOTONIC
}

// probeEvery is short beside what is measured, and leaves the cores to others.
const probeEvery = time.Millisecond

// probe calls a screen's supervisor over and over until it is killed, and says when the
// answers change: kind input acts as the agent, screenshot looks as it, lease asks who
// holds.
func probe(socket, kind string) error {
	operator := control.NewClient(control.Unix(socket))
	client := control.NewClient(func(ctx context.Context) (net.Conn, error) {
		conn, err := operator.Tunnel(ctx, control.CommandAgent)
		if err != nil {
			return nil, err
		}
		return conn, control.OpenTunnel(ctx, conn, control.Hello{})
	})
	ctx := context.Background()
	refused := true
	for range time.Tick(probeEvery) {
		now, err := refusedNow(ctx, client, kind)
		if err != nil {
			return err
		}
		if now == refused {
			continue
		}
		refused = now
		if err := say(turn{refused, monotonic()}); err != nil {
			return err
		}
	}
	return nil
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// refusedNow makes one call. The epoch it acts under is the one it sees just before.
func refusedNow(ctx context.Context, client *control.Client, kind string) (bool, error) {
	held, err := client.Lease(ctx)
	if err != nil || held.Holder == lease.Human || kind == "lease" {
		return held.Holder == lease.Human, err
	}
	switch kind {
	case "input":
		_, err = client.Input(ctx, control.InputRequest{Epoch: held.Epoch, Actions: action.List{action.Move{Point: action.Point{X: 5, Y: 5}}}})
	case "screenshot":
		_, err = client.Screenshot(ctx, control.ScreenshotRequest{Rect: image.Rect(0, 0, 1, 1)})
	default:
		return false, fmt.Errorf("%q is not one of input, screenshot, lease", kind)
	}
	if errors.Is(err, &control.Error{Kind: control.HumanHasControl}) || errors.Is(err, &control.Error{Kind: control.LeaseChanged}) {
		return true, nil
	}
	return false, err
}

// thumbnail saves one picture as the command line does, without finding the screen.
func thumbnail(socket, file string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := control.NewClient(control.Unix(socket))
	defer client.Close()
	picture, err := client.Screenshot(ctx, control.ScreenshotRequest{Thumbnail: true})
	if err != nil {
		return err
	}
	return os.WriteFile(file, picture.Data, 0o600)
}
