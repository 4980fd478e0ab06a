// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/desktop"
	"github.com/botscreen/botscreen/driver/display"
)

const (
	widthPx, heightPx = 1440, 900
	readyLimit        = 60 * time.Second
	stopLimit         = 15 * time.Second
)

type bench struct {
	subjects []string
	runs     int
	uid      int
	json     bool
	verbose  bool
	atOnce   int
	settle   time.Duration
	shot     string

	dir    string
	seed   string
	number int
}

// sample is one run; times are milliseconds since the process was started.
type sample struct {
	Subject    string  `json:"subject"`
	Run        int     `json:"run"`
	X          float64 `json:"x_ms"`
	WM         float64 `json:"wm_ms"`
	Panel      float64 `json:"panel_ms"`
	Background float64 `json:"background_ms"`
	Ready      float64 `json:"ready_ms"`
	CPU        float64 `json:"cpu_ms"`
	Stop       float64 `json:"stop_ms,omitempty"`
	PSS        float64 `json:"pss_mb,omitempty"` // of what runs below the first process, at rest
	Display    int     `json:"-"`
}

func (b *bench) run() error {
	if len(b.subjects) == 0 {
		return errors.New("name what to measure: ours or scripts")
	}
	dir, err := os.MkdirTemp("", "deskwatch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	b.dir = dir
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := (display.Host{}).PrepareSocketDir(); err != nil {
		return err
	}
	if err := addPasswdEntry(b.uid, dir); err != nil {
		return err
	}
	if err := b.makeSeed(); err != nil {
		return err
	}
	if b.atOnce > 0 {
		for _, subject := range b.subjects {
			if err := b.crowd(subject); err != nil {
				return fmt.Errorf("%d of %s: %w", b.atOnce, subject, err)
			}
		}
		return nil
	}
	all := map[string][]sample{}
	for run := range b.runs {
		for _, subject := range b.subjects {
			s, err := b.measure(subject, run)
			if err != nil {
				return fmt.Errorf("%s, run %d: %w", subject, run, err)
			}
			all[subject] = append(all[subject], s)
			b.print(s)
		}
	}
	return summarize(os.Stderr, b.subjects, all)
}

func (b *bench) print(s sample) {
	if b.json {
		_ = json.NewEncoder(os.Stdout).Encode(s)
		return
	}
	fmt.Printf("%-12s x %5.0f  wm %5.0f  panel %5.0f  background %5.0f  ready %5.0f  cpu %5.0f  ",
		filepath.Base(s.Subject), s.X, s.WM, s.Panel, s.Background, s.Ready, s.CPU)
	if s.PSS > 0 {
		fmt.Printf("pss %3.0f MB\n", s.PSS)
		return
	}
	fmt.Printf("stop %5.0f\n", s.Stop)
}

// makeSeed starts one desktop of ours and keeps its settings: the complete home
// that the best script copies.
func (b *bench) makeSeed() error {
	b.seed = filepath.Join(b.dir, "seed")
	if _, err := b.measure("ours", -1); err != nil {
		return fmt.Errorf("make seed: %w", err)
	}
	return nil
}

// run directories of one desktop.
type runDirs struct{ home, runtime, x string }

func (b *bench) makeDirs(run string) (runDirs, error) {
	base := filepath.Join(b.dir, run)
	d := runDirs{filepath.Join(base, "home"), filepath.Join(base, "run"), filepath.Join(base, "x")}
	for _, dir := range []string{base, d.home, d.runtime, d.x} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return d, err
		}
		if err := os.Chown(dir, b.uid, b.uid); err != nil {
			return d, err
		}
	}
	return d, nil
}

// watched is a desktop that was started.
type watched struct {
	sample
	dirs   runDirs
	cookie display.Cookie
	cmd    *exec.Cmd
	ended  chan error
}

func (b *bench) measure(subject string, run int) (sample, error) {
	began := time.Now()
	w, err := b.begin(subject, run)
	if err != nil {
		return sample{}, err
	}
	if run >= 0 {
		defer w.remove()
	}
	err = b.watch(w, began, firstTick)
	if err == nil {
		w.CPU = cpuBelow(w.cmd.Process.Pid)
		err = b.picture(subject, w.dirs)
	}
	if run < 0 && err == nil {
		err = copySeed(w.dirs.home, b.seed)
	}
	stopped := time.Now()
	err = errors.Join(err, stopTrees(w))
	w.Stop = since(stopped)
	return w.sample, err
}

// begin starts a desktop on a display that nobody has.
func (b *bench) begin(subject string, run int) (*watched, error) {
	if err := b.nextNumber(); err != nil {
		return nil, err
	}
	dirs, err := b.makeDirs(fmt.Sprintf("%d", b.number))
	if err != nil {
		return nil, err
	}
	w := &watched{sample: sample{Subject: subject, Run: run, Display: b.number}, dirs: dirs, ended: make(chan error, 1)}
	if w.cmd, w.cookie, err = b.command(subject, dirs); err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		w.remove()
		return nil, err
	}
	go func() { w.ended <- w.cmd.Wait() }()
	return w, nil
}

func (w *watched) remove() { _ = os.RemoveAll(filepath.Dir(w.dirs.home)) }

// nextNumber picks a display that nobody has, each one once.
func (b *bench) nextNumber() error {
	for range 1000 {
		b.number++
		status, err := display.Host{}.Inspect(display.Number(b.number))
		if err != nil {
			return err
		}
		if status.State == display.Free {
			return nil
		}
	}
	return errors.New("no display is free")
}

func since(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }

func (b *bench) command(subject string, dirs runDirs) (*exec.Cmd, display.Cookie, error) {
	cookie := display.NewCookie()
	cmd := &exec.Cmd{Dir: dirs.home}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Credential: &syscall.Credential{Uid: uint32(b.uid), Gid: uint32(b.uid)},
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "HOME=" + dirs.home, "XDG_RUNTIME_DIR=" + dirs.runtime}
	var out io.Writer
	if b.verbose {
		out = os.Stderr
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second
	if subject == "ours" {
		options, err := json.Marshal(sessionOptions{
			Display: b.number, Home: dirs.home, RuntimeDir: dirs.runtime, XDir: dirs.x, Env: cmd.Env,
		})
		cmd.Path, cmd.Args = "/proc/self/exe", []string{"deskwatch", sessionCommand}
		cmd.Stdin = bytes.NewReader(options)
		return cmd, cookie, err // it makes a cookie of its own
	}
	path, err := filepath.Abs(subject)
	cmd.Path, cmd.Args = path, []string{path}
	cmd.Env = append(cmd.Env, fmt.Sprintf("BENCH_DISPLAY=%d", b.number), "BENCH_X="+dirs.x,
		fmt.Sprintf("BENCH_GEOMETRY=%dx%d", widthPx, heightPx), "BENCH_SEED="+b.seed)
	if err != nil {
		return nil, cookie, err
	}
	return cmd, cookie, b.authorize(dirs.x, cookie)
}

func (b *bench) authorize(dir string, cookie display.Cookie) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return display.WriteAuthority(root, "Xauthority", display.CookieEntries(display.Number(b.number), "", cookie),
		display.Owner{UID: b.uid, GID: b.uid})
}

// firstTick is how often one desktop's X server is asked for.
const firstTick = 2 * time.Millisecond

// watch fills in the times. It asks for the X server at each tick; from then on the server
// tells.
func (b *bench) watch(s *watched, started time.Time, tick time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	for {
		conn, err := net.Dial("unix", fmt.Sprintf("@/tmp/.X11-unix/X%d", s.Display))
		if err == nil {
			_ = conn.Close()
			break
		}
		select {
		case err := <-s.ended:
			s.ended <- err
			return fmt.Errorf("it ended before X answered: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(tick):
		}
	}
	s.X = since(started)
	cookie := s.cookie
	if s.Subject == "ours" {
		var err error
		if cookie, err = readCookie(filepath.Join(s.dirs.x, "Xauthority")); err != nil {
			return err
		}
	}
	err := desktop.AwaitReady(ctx, display.Number(s.Display), cookie, func(what string) {
		switch what {
		case "wm":
			s.WM = since(started)
		case "panel":
			s.Panel = since(started)
		case "background":
			s.Background = since(started)
		}
	})
	s.Ready = since(started)
	return err
}

func readCookie(path string) (display.Cookie, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return display.Cookie{}, err
	}
	entries, err := display.ParseAuthority(data)
	if err != nil {
		return display.Cookie{}, err
	}
	for _, entry := range entries {
		if cookie, ok := entry.Cookie(); ok {
			return cookie, nil
		}
	}
	return display.Cookie{}, errors.New("no cookie in " + path)
}

// picture keeps what is on the screen, where asked for and possible.
func (b *bench) picture(subject string, dirs runDirs) error {
	if b.shot == "" {
		return nil
	}
	name := strings.TrimSuffix(filepath.Base(subject), ".sh") + ".png"
	cmd := exec.Command("import", "-window", "root", filepath.Join(b.shot, name))
	cmd.Env = append(os.Environ(), fmt.Sprintf("DISPLAY=:%d", b.number), "XAUTHORITY="+filepath.Join(dirs.x, "Xauthority"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("take picture: %w: %s", err, out)
	}
	return nil
}
