// SPDX-License-Identifier: MPL-2.0

package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/devagent/logmon"
	"github.com/botscreen/botscreen/shared/devagent/state"
)

const (
	// frameSize bounds the data of one frame, in bytes.
	frameSize = 64 << 10
	// lookRate is how often a followed log is looked at for more, and heartbeatRate how
	// often a frame without data shows that the stream lives.
	lookRate      = 100 * time.Millisecond
	heartbeatRate = time.Second
)

// logRequest is what a client wants of a log.
type logRequest struct {
	task, stream  string
	fromEnd       bool
	offset        int64
	follow, plain bool
}

func (a *API) logs(w http.ResponseWriter, r *http.Request) (any, error) {
	req, err := parseLogRequest(r)
	if err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	dir, err := a.Client.Dir(id)
	if err != nil {
		return nil, err
	}
	if err := a.hasStarted(id, req.task); err != nil {
		return nil, err
	}
	tail, err := openTail(dir.Logs(), req.task+"."+req.stream)
	if err != nil {
		return nil, refuse(http.StatusNotFound, "log entry for task %q and log type %q not found", req.task, req.stream)
	}
	defer tail.close()
	tail.seek(req.offset, req.fromEnd)
	w.Header().Set("Content-Type", "application/json")
	if req.plain {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	w.WriteHeader(http.StatusOK)
	tail.copy(r.Context(), req.follow, newSink(w, req))
	return nil, nil
}

func parseLogRequest(r *http.Request) (req logRequest, err error) {
	q := r.URL.Query()
	req.task, req.stream = q.Get("task"), q.Get("type")
	if req.task == "" {
		return req, refuse(http.StatusBadRequest, "must provide task name")
	}
	if req.stream != logmon.Stdout && req.stream != logmon.Stderr {
		return req, refuse(http.StatusBadRequest, "must provide log type (stdout/stderr)")
	}
	switch q.Get("origin") {
	case "", "start":
	case "end":
		req.fromEnd = true
	default:
		return req, refuse(http.StatusBadRequest, "origin must be start or end")
	}
	if text := q.Get("offset"); text != "" {
		if req.offset, err = strconv.ParseInt(text, 10, 64); err != nil || req.offset < 0 {
			return req, refuse(http.StatusBadRequest, "error parsing offset: %q is not a number of bytes", text)
		}
	}
	if req.follow, err = flag(r, "follow"); err != nil {
		return req, err
	}
	req.plain, err = flag(r, "plain")
	return req, err
}

func (a *API) hasStarted(id, task string) error {
	var states map[string]*api.TaskState
	var known bool
	a.Store.Read(func(v *state.View) {
		alloc := v.Alloc(id)
		states = alloc.TaskStates
		for _, t := range alloc.Job.LookupTaskGroup(alloc.TaskGroup).Tasks {
			known = known || t.Name == task
		}
	})
	if !known {
		return refuse(http.StatusBadRequest, "unknown task name %q", task)
	}
	if s := states[task]; s == nil || s.StartedAt.IsZero() {
		return refuse(http.StatusNotFound, "task %q not started yet. No logs available", task)
	}
	return nil
}

// sink writes what is read: framed, or as it is.
type sink struct {
	w     http.ResponseWriter
	plain bool
	enc   *json.Encoder
}

func newSink(w http.ResponseWriter, req logRequest) *sink {
	return &sink{w: w, plain: req.plain, enc: json.NewEncoder(w)}
}

func (s *sink) write(f api.StreamFrame) error {
	var err error
	switch {
	case !s.plain:
		err = s.enc.Encode(f)
	case len(f.Data) > 0:
		_, err = s.w.Write(f.Data)
	}
	return errors.Join(err, http.NewResponseController(s.w).Flush())
}

// tail reads the rotated files of a log as one stream. Their directory is a task's
// too: names are opened without following links.
type tail struct {
	dir    *os.File
	base   string
	index  int
	offset int64
	file   *os.File
}

func openTail(path, base string) (*tail, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	t := &tail{dir: os.NewFile(uintptr(fd), path), base: base}
	if len(t.present()) == 0 {
		t.close()
		return nil, os.ErrNotExist
	}
	return t, nil
}

func (t *tail) close() {
	if t.file != nil {
		_ = t.file.Close()
	}
	_ = t.dir.Close()
}

func (t *tail) present() []int { return logmon.Present(t.dir, t.base) }

func (t *tail) size(index int) int64 {
	var stat unix.Stat_t
	err := unix.Fstatat(int(t.dir.Fd()), t.base+"."+strconv.Itoa(index), &stat, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0
	}
	return stat.Size
}

// seek goes to a number of bytes after the start, or before the end, of all files
// together.
func (t *tail) seek(offset int64, fromEnd bool) {
	files := t.present()
	if len(files) == 0 {
		return
	}
	if fromEnd {
		var total int64
		for _, n := range files {
			total += t.size(n)
		}
		offset = max(0, total-offset)
	}
	for _, n := range files {
		t.index, t.offset = n, offset
		size := t.size(n)
		if offset <= size {
			return
		}
		offset -= size
	}
	t.offset = t.size(t.index)
}

// copy writes from here to the end, and with follow beyond it until ctx is done.
func (t *tail) copy(ctx context.Context, follow bool, out *sink) {
	look, heartbeat := time.NewTicker(lookRate), time.NewTicker(heartbeatRate)
	defer look.Stop()
	defer heartbeat.Stop()
	buf := make([]byte, frameSize)
	for {
		n := t.read(buf)
		if n > 0 {
			t.offset += int64(n)
			f := api.StreamFrame{Offset: t.offset, Data: buf[:n], File: "alloc/logs/" + t.base + "." + strconv.Itoa(t.index)}
			if out.write(f) != nil {
				return
			}
			continue
		}
		if t.next() {
			continue
		}
		if !follow {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		case <-heartbeat.C:
			if out.write(api.StreamFrame{}) != nil {
				return
			}
		}
	}
}

// read reads at the position; 0 is the end of the file, or no file.
func (t *tail) read(buf []byte) int {
	if t.file == nil {
		fd, err := unix.Openat(int(t.dir.Fd()), t.base+"."+strconv.Itoa(t.index),
			unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0
		}
		var stat unix.Stat_t
		if unix.Fstat(fd, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Nlink > 1 {
			_ = unix.Close(fd)
			return 0
		}
		t.file = os.NewFile(uintptr(fd), t.base)
	}
	n, err := t.file.ReadAt(buf, t.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	return n
}

// next goes to the following file, if there is one.
func (t *tail) next() bool {
	for _, n := range t.present() {
		if n > t.index {
			if t.file != nil {
				_ = t.file.Close()
				t.file = nil
			}
			t.index, t.offset = n, 0
			return true
		}
	}
	return false
}
