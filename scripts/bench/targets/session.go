// SPDX-License-Identifier: MPL-2.0

package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/apptainer"
	"github.com/botscreen/botscreen/driver/isolation/docker"
	"github.com/botscreen/botscreen/driver/isolation/host"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/screen"
)

// wireUID is the uid of sessions that the bench itself launches, and wireDisplays are
// their numbers: of docker's only is that its own.
const wireUID = 61001

var wireDisplays = map[string]int{"host": 1097, "docker": 1098, "apptainer": 1098}

// sessionIn launches a session in a sandbox with this process as its supervisor, which
// starts a desktop; dial asks it for a connection to its Xvnc.
func (b *bench) sessionIn(s sandbox) (dial func() (net.Conn, error), stop func() error, err error) {
	boundary, image, err := boundaryOf(b, s)
	if err != nil {
		return nil, nil, err
	}
	order, listener, err := b.orderFor(s.kind, image)
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	ctx, cancel := within()
	defer cancel()
	launched, err := boundary.Launch(ctx, order)
	if err != nil {
		return nil, nil, err
	}
	end := func() error {
		ctx, cancel := within()
		defer cancel()
		return errors.Join(launched.Kill(ctx), launched.Remove(ctx))
	}
	conn, err := listener.AcceptUnix()
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	home := &wireSession{conn: dialhome.NewConn(conn)}
	if err := home.start(order, wireDisplays[s.kind]); err != nil {
		return nil, nil, errors.Join(err, home.conn.Close(), end())
	}
	return home.dial, func() error { return errors.Join(home.conn.Close(), end()) }, nil
}

func boundaryOf(b *bench, s sandbox) (isolation.Boundary, string, error) {
	groups, err := cgroup.Open(cgroup.Host{}, "")
	if err != nil {
		return nil, "", err
	}
	switch s.kind {
	case "host":
		return &host.Boundary{Cgroups: groups}, "", nil
	case "docker":
		boundary, err := docker.New(os.Getenv("BOTSCREEN_TEST_DOCKER"), b.dir)
		return boundary, s.image, err
	}
	config, ok := engineConfig(map[string]any{})["apptainer"].([]any)
	if !ok {
		return nil, "", errors.New("no apptainer")
	}
	found := config[0].(map[string]any)
	dir := found["image_dirs"].([]any)[0].(string)
	return apptainer.New(apptainer.Options{Path: found["path"].(string), ImageDirs: []string{dir}, StateDir: b.dir, Cgroups: groups}), filepath.Join(dir, s.image), nil
}

// orderFor makes the directories of a run and the socket that its session dials.
func (b *bench) orderFor(kind, image string) (order isolation.Order, listener *net.UnixListener, err error) {
	var instance [16]byte
	_, _ = rand.Read(instance[:]) // never fails, see crypto/rand
	order = isolation.Order{
		ID: screen.ID{Namespace: "bench", Profile: screen.Profile("wire-" + kind)}, Instance: hex.EncodeToString(instance[:]),
		Image: image, Account: isolation.Account{UID: wireUID, GID: wireUID, Name: "screen"},
	}
	dir, err := os.MkdirTemp(b.dir, "w")
	if err != nil {
		return order, nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return order, nil, err
	}
	for _, made := range []struct {
		into  *string
		name  string
		owner int
		mode  os.FileMode
	}{{&order.DialDir, "d", 0, 0o711}, {&order.XDir, "x", wireUID, 0o700}, {&order.Home, "h", wireUID, 0o700}, {&order.Scratch, "b", 0, 0o700}} {
		*made.into = filepath.Join(dir, made.name)
		if err := errors.Join(os.Mkdir(*made.into, made.mode), os.Chmod(*made.into, made.mode), os.Chown(*made.into, made.owner, made.owner)); err != nil {
			return order, nil, err
		}
	}
	order.Binary = filepath.Join(dir, "driver") // where every uid may run it
	if err := copyFile(pluginPath, order.Binary); err != nil {
		return order, nil, err
	}
	log, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return order, nil, err
	}
	order.Log, order.ErrorLog = log, log
	path := filepath.Join(order.DialDir, "s")
	listener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return order, nil, err
	}
	return order, listener, os.Chmod(path, 0o666)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// wireSession is a session as its supervisor sees it.
type wireSession struct {
	conn *dialhome.Conn
	last uint64
}

func (s *wireSession) start(order isolation.Order, number int) error {
	fd, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	plan := os.NewFile(uintptr(fd), "plan")
	defer plan.Close()
	text, err := json.Marshal(dialhome.Plan{
		Display: number, WidthPx: wireWidth, HeightPx: wireHeight, Depth: 24, DPI: 96, KeyboardLayout: "us", Look: "lean",
		Home: order.Home, XDir: order.XDir, RuntimeDir: filepath.Join(order.XDir, "runtime"), Deadline: patience,
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
	})
	if err != nil {
		return err
	}
	if _, err := plan.Write(text); err != nil {
		return err
	}
	_, err = s.ask(dialhome.OpStart, dialhome.Start{HasPlan: true}, plan)
	return err
}

// ask waits for the answer and passes over what the session says by itself.
func (s *wireSession) ask(op dialhome.Op, body any, files ...*os.File) ([]*dialhome.Descriptor, error) {
	s.last++
	if err := s.conn.Send(dialhome.Packet{ID: s.last, Op: op, Body: dialhome.Encode(body)}, files...); err != nil {
		return nil, err
	}
	for {
		packet, passed, err := s.conn.Receive()
		switch {
		case err != nil:
			return nil, err
		case packet.ID != s.last:
			dialhome.CloseAll(passed)
		case packet.Err != nil:
			return nil, packet.Err
		default:
			return passed, nil
		}
	}
}

// dial is a connection that the session passes out.
func (s *wireSession) dial() (net.Conn, error) {
	passed, err := s.ask(dialhome.OpDial, struct{}{})
	if err != nil {
		return nil, err
	}
	if len(passed) != 1 {
		dialhome.CloseAll(passed)
		return nil, fmt.Errorf("%d descriptors came with the connection", len(passed))
	}
	f := passed[0].File("rfb")
	defer f.Close()
	return net.FileConn(f)
}
