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
	"net/url"
	"os"
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
// takes with that page, in each isolation that has a browser here. The page is a file of
// the home: a sandbox reaches nothing of this machine.
func (b *bench) browser(runs int) ([]row, error) {
	var rows []row
	for _, s := range browsing() {
		var cold, warm, memory []float64
		for i := range runs {
			n := 6000 + 100*len(rows) + i
			_, end, err := b.startScreenIn(n, map[string]any{"isolation": s.kind, "image": s.image})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.kind, err)
			}
			address, err := b.placePage(n)
			var f browserTimes
			if err == nil {
				f, err = b.measureBrowser(address)
			}
			if err := errors.Join(err, end()); err != nil {
				return nil, fmt.Errorf("%s: %w", s.kind, err)
			}
			cold, warm, memory = append(cold, f.cold), append(warm, f.warm), append(memory, f.memory)
		}
		rows = append(rows,
			alone(browserFigures, "browser open to first paint, new profile, "+s.kind, "ms", cold),
			alone(browserFigures, "the same, the browser runs, "+s.kind, "ms", warm),
			alone(browserFigures, "screen with one page (PSS), "+s.kind, "MB", memory))
	}
	return rows, nil
}

// browsing are the isolations that have a browser here; what is missing is said.
func browsing() []sandbox {
	var found []sandbox
	if _, err := exec.LookPath("chromium"); err == nil {
		found = append(found, sandbox{kind: "host"})
	} else {
		fmt.Fprintln(os.Stderr, "the browser of host screens is left out: chromium is not on PATH")
	}
	if image := os.Getenv(browserImage); image != "" && os.Getenv("BOTSCREEN_TEST_DOCKER") != "" {
		found = append(found, sandbox{kind: "docker", image: image})
	} else {
		fmt.Fprintf(os.Stderr, "the browser of docker screens is left out: no engine, or %s names no image with one\n", browserImage)
	}
	_, err := exec.LookPath("apptainer")
	if root := os.Getenv(browserRoot); err == nil && root != "" {
		found = append(found, sandbox{kind: "apptainer", image: filepath.Base(root)})
	} else {
		fmt.Fprintf(os.Stderr, "the browser of apptainer screens is left out: it is not on PATH, or %s names no directory with one\n", browserRoot)
	}
	return found
}

// placePage writes the bench's page into the home of a screen, which has the same path
// wherever it runs, and returns its address.
func (b *bench) placePage(n int) (string, error) {
	path := filepath.Join(b.dir, "state", "data", "default", profileOf(n), "page.html")
	text := fmt.Sprintf(`<body style="background:#%02x%02x%02x">`, painted.R, painted.G, painted.B)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return "", err
	}
	return (&url.URL{Scheme: "file", Path: path}).String(), nil
}

type browserTimes struct{ cold, warm, memory float64 }

func (b *bench) measureBrowser(address string) (f browserTimes, err error) {
	op, err := b.operator()
	if err != nil {
		return f, err
	}
	client := control.NewClient(control.Unix(op))
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
