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
// answers change: kind input acts as the agent, screenshot looks as it, watch waits as it
// for the picture to change, which it does not, and lease asks who holds.
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
	p := prober{client: client, kind: kind}
	refused := true
	for range time.Tick(probeEvery) {
		if refused || kind == "lease" { // who has been admitted goes on until it is refused
			var err error
			if p.held, err = client.Lease(ctx); err != nil {
				return err
			}
		}
		now, err := p.refusedNow(ctx)
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

// prober is one probe, the lease it acts under and the picture it has seen.
type prober struct {
	client *control.Client
	kind   string
	held   lease.Public
	seen   string
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// refusedNow makes one call, unless a person is known to hold the screen.
func (p *prober) refusedNow(ctx context.Context) (bool, error) {
	if p.held.Holder == lease.Human || p.kind == "lease" {
		return p.held.Holder == lease.Human, nil
	}
	var err error
	switch p.kind {
	case "input":
		move := action.List{action.Move{Point: action.Point{X: 5, Y: 5}}}
		_, err = p.client.Input(ctx, control.InputRequest{Epoch: p.held.Epoch, Actions: move})
	case "screenshot":
		err = p.look(ctx, control.ScreenshotRequest{})
	case "watch":
		// The first picture says that it is admitted, the second is waited for.
		wait := control.ScreenshotRequest{Unless: p.seen, Until: control.Change, Within: control.MaxWithin}
		if p.seen == "" {
			wait = control.ScreenshotRequest{}
		}
		err = p.look(ctx, wait)
	default:
		return false, fmt.Errorf("%q is not one of input, screenshot, watch, lease", p.kind)
	}
	if errors.Is(err, &control.Error{Kind: control.HumanHasControl}) || errors.Is(err, &control.Error{Kind: control.LeaseChanged}) {
		p.seen = ""
		return true, nil
	}
	return false, err
}

// look takes the picture of one corner, which nothing happens in.
func (p *prober) look(ctx context.Context, req control.ScreenshotRequest) error {
	req.Rect = image.Rect(0, 0, 1, 1)
	shot, err := p.client.Screenshot(ctx, req)
	p.seen = shot.Hash
	return err
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
