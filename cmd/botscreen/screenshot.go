// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

func (c *cli) screenshotCommand() *cobra.Command {
	var out string
	req := control.ScreenshotRequest{Format: control.PNG}
	cmd := &cobra.Command{
		Use:   "screenshot -o FILE SCREEN",
		Short: "Save a picture of a screen",
		Long: `Save a picture of a screen, as PNG, or as JPEG where FILE ends in .jpg. "-" writes to standard output.
It is refused while a person has control. With --thumbnail it is a JPEG of at most 960x600, which people get also
while one of them has control, where the job says watch = "all" and not thumbnails = "off".`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.screenshot(cmd.Context(), args[0], out, req) },
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "`FILE` to write (required)")
	cmd.Flags().Float64Var(&req.Scale, "scale", 0, "above 0 and at most 1 (default 1)")
	cmd.Flags().BoolVar(&req.Thumbnail, "thumbnail", false, "a small JPEG of the whole screen")
	return cmd
}

func (c *cli) screenshot(ctx context.Context, name, out string, req control.ScreenshotRequest) error {
	if out == "" {
		return failf(exitUsage, "Say where to: `botscreen screenshot -o FILE.png SCREEN`.")
	}
	if out == "-" && terminal(c.out) {
		return failf(exitUsage, "A picture is not written to a terminal. Name a file with -o.")
	}
	switch ext := strings.ToLower(filepath.Ext(out)); {
	case req.Thumbnail && req.Scale != 0:
		return failf(exitUsage, "A thumbnail has a size of its own: leave --scale or --thumbnail out.")
	case req.Thumbnail && ext == ".png":
		return failf(exitUsage, "A thumbnail is a JPEG: name a FILE.jpg with -o.")
	case req.Thumbnail:
		req.Format = "" // the only one it has
	case ext == ".jpg" || ext == ".jpeg":
		req.Format = control.JPEG
	}
	s, conn, err := c.reach(ctx, name)
	if err != nil {
		return err
	}
	defer conn.Close()
	picture, err := conn.Screenshot(ctx, req)
	if err != nil {
		return c.screenError(s, err)
	}
	if out == "-" {
		_, err := c.out.Write(picture.Data)
		return err
	}
	if err := replaceFile(out, picture.Data); err != nil {
		return failf(exitFailed, "Cannot write the picture: %v.", err)
	}
	if c.json {
		return c.printJSON(map[string]any{"file": out, "bytes": len(picture.Data), "format": picture.Format, "epoch": picture.Epoch, "hash": picture.Hash})
	}
	_, err = fmt.Fprintf(c.out, "Wrote %s (%d bytes).\n", line(out), len(picture.Data))
	return err
}

// reach finds a screen that runs and gives a client of its supervisor.
func (c *cli) reach(ctx context.Context, name string) (nomadjob.Screen, *control.Client, error) {
	client, s, err := c.running(ctx, name)
	if err != nil {
		return s, nil, err
	}
	return s, control.NewClient(nomadjob.Dial(client, s, control.Hello{})), nil
}

// withScreen makes a call of the supervisor of a screen that runs, and says what it refused.
func (c *cli) withScreen(ctx context.Context, name string, limit time.Duration, call func(context.Context, *control.Client) error) (nomadjob.Screen, error) {
	s, conn, err := c.reach(ctx, name)
	if err != nil {
		return s, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := call(ctx, conn); err != nil {
		return s, c.screenError(s, err)
	}
	return s, nil
}

// running finds a screen that runs.
func (c *cli) running(ctx context.Context, name string) (*api.Client, nomadjob.Screen, error) {
	client, s, err := c.located(ctx, name)
	if err != nil {
		return nil, s, err
	}
	if !s.Live() {
		return nil, s, failf(exitFailed, "Screen %s does not run (%s).", line(s.Path()), word(s))
	}
	return client, s, nil
}

// screenError says what a supervisor refused, or that it cannot be reached.
func (c *cli) screenError(s nomadjob.Screen, err error) error {
	var refusal *control.Error
	if errors.As(err, &refusal) {
		text := refusal.Message
		if refusal.Next != "" {
			text += " " + refusal.Next
		}
		return failf(exitFailed, "%s", text)
	}
	return failf(exitFailed, "Screen %s cannot be reached: %v. The token needs alloc-exec and alloc-node-exec.", line(s.Path()), err)
}

// replaceFile writes a file whole or not at all, for its owner only.
func replaceFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".botscreen-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}
