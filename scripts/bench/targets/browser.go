// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/botscreen/botscreen/shared/control"
)

// browserFigures is the number of what has no target: a browser's own.
const browserFigures = 90

// painted is the colour of the bench's page, which nothing else on a desktop has.
var painted = color.RGBA{R: 0xc0, G: 0x12, B: 0x34, A: 0xff}

// browser measures from the call that opens an address to the first pixel of its page on
// the screen, with a browser that does not run and with one that does, and what a screen
// takes with that page.
func (b *bench) browser(runs int) ([]row, error) {
	if _, err := exec.LookPath("chromium"); err != nil {
		return nil, fmt.Errorf("needs chromium: %w", err)
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, fmt.Sprintf(`<body style="background:#%02x%02x%02x">`, painted.R, painted.G, painted.B))
	}))
	defer page.Close()
	var cold, warm, memory []float64
	for i := range runs {
		_, end, err := b.startScreen(6000 + i)
		if err != nil {
			return nil, err
		}
		f, err := b.measureBrowser(page.URL)
		if err := errors.Join(err, end()); err != nil {
			return nil, err
		}
		cold, warm, memory = append(cold, f.cold), append(warm, f.warm), append(memory, f.memory)
	}
	return []row{
		alone(browserFigures, "browser open to first paint, new profile", "ms", cold),
		alone(browserFigures, "the same, the browser runs", "ms", warm),
		alone(browserFigures, "screen with one page (PSS)", "MB", memory),
	}, nil
}

type browserTimes struct{ cold, warm, memory float64 }

func (b *bench) measureBrowser(address string) (f browserTimes, err error) {
	ops, err := filepath.Glob(filepath.Join(b.dir, "run", "*", "op"))
	if err != nil || len(ops) != 1 {
		return f, fmt.Errorf("%d operator sockets, %w", len(ops), err)
	}
	client := control.NewClient(control.Unix(ops[0]))
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if f.cold, err = untilPainted(ctx, client, address); err != nil {
		return f, err
	}
	time.Sleep(settle)
	if f.memory, err = b.desktopMB(1); err != nil {
		return f, err
	}
	if _, err := client.OpenBrowser(ctx, control.BrowserRequest{URL: "about:blank"}); err != nil {
		return f, err
	}
	if err := awaitColour(ctx, client, false); err != nil {
		return f, err
	}
	f.warm, err = untilPainted(ctx, client, address)
	return f, err
}

func untilPainted(ctx context.Context, client *control.Client, address string) (milliseconds float64, err error) {
	began := time.Now()
	if _, err := client.OpenBrowser(ctx, control.BrowserRequest{URL: address}); err != nil {
		return 0, err
	}
	err = awaitColour(ctx, client, true)
	return float64(time.Since(began)) / float64(time.Millisecond), err
}

// awaitColour looks at a spot that a browser's page covers until it has the page's colour,
// or has it no more. A picture waits for a change itself, so nothing is asked in a row.
func awaitColour(ctx context.Context, client *control.Client, want bool) error {
	spot := image.Rect(400, 500, 408, 508)
	hash := ""
	for {
		request := control.ScreenshotRequest{Rect: spot, Unless: hash}
		if hash != "" {
			request.Until, request.Within = control.Change, time.Second
		}
		shot, err := client.Screenshot(ctx, request)
		if err != nil {
			return err
		}
		if hash = shot.Hash; len(shot.Data) == 0 {
			continue
		}
		picture, err := png.Decode(bytes.NewReader(shot.Data))
		if err != nil {
			return err
		}
		at := color.RGBAModel.Convert(picture.At(picture.Bounds().Min.X, picture.Bounds().Min.Y))
		if (at == painted) == want {
			return nil
		}
	}
}
