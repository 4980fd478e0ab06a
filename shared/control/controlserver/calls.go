// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/botscreen/botscreen/shared/control"
)

// signOfLife is how often a quiet event stream sends an empty line, by which both
// sides learn that the other is still there.
const signOfLife = 30 * time.Second

func (s *Server) events(b EventSource) handler {
	return func(w http.ResponseWriter, r *http.Request, _ Caller) (any, error) {
		since, err := parseSince(r.URL.Query().Get("since"))
		if err != nil {
			return nil, err
		}
		leave, err := s.limits.events.enter(r.Context())
		if err != nil {
			return nil, err
		}
		defer leave()
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
		lines := &lineWriter{w: w, control: http.NewResponseController(w)}
		if err := lines.flush(); err != nil {
			return written{}, nil
		}
		err = stream(r.Context(), b, since, lines)
		if r.Context().Err() == nil {
			s.log.Warn("event stream ended", "err", err)
		}
		return written{}, nil
	}
}

func parseSince(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	since, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, &control.Error{Kind: control.BadRequest, Message: fmt.Sprintf("since must be the number of an event; it is %q.", text)}
	}
	return since, nil
}

// stream writes events until that fails, which is how it ends.
func stream(ctx context.Context, b EventSource, since uint64, lines *lineWriter) error {
	for {
		wait, stop := context.WithTimeout(ctx, signOfLife)
		events, err := b.EventsAfter(wait, since)
		quiet := wait.Err() != nil && ctx.Err() == nil
		stop()
		if err != nil && !quiet {
			return err
		}
		for _, event := range events {
			if err := lines.put(event); err != nil {
				return err
			}
			since = event.Seq
		}
		if len(events) == 0 {
			if err := lines.blank(); err != nil {
				return err
			}
		}
		if err := lines.flush(); err != nil {
			return err
		}
	}
}

// lineWriter writes NDJSON; a reader that stopped reading makes it fail.
type lineWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (l *lineWriter) put(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return l.write(append(line, '\n'))
}

func (l *lineWriter) blank() error { return l.write([]byte{'\n'}) }

func (l *lineWriter) write(line []byte) error {
	l.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := l.w.Write(line)
	return err
}

func (l *lineWriter) flush() error {
	l.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	return l.control.Flush()
}

func (s *Server) screenshot(b Screenshooter) handler {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		req, err := control.ParseScreenshotRequest(r.URL.Query())
		if err != nil {
			return nil, &control.Error{Kind: control.BadRequest, Message: "The screenshot cannot be taken: " + err.Error() + "."}
		}
		limit := s.limits.pictures
		if req.Until != "" {
			limit = s.limits.watches // it waits, and must not hold up those that do not
		}
		leave, err := limit.enter(r.Context())
		if err != nil {
			return nil, err
		}
		defer leave()
		shot, err := b.Screenshot(r.Context(), caller, req)
		if err != nil {
			return nil, err
		}
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
		sendPicture(w, shot)
		return written{}, nil
	}
}

func sendPicture(w http.ResponseWriter, shot control.Screenshot) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set(control.HeaderEpoch, strconv.FormatUint(uint64(shot.Epoch), 10))
	h.Set(control.HeaderHash, shot.Hash)
	h.Set(control.HeaderScreen, shot.Screen.String())
	if shot.Late {
		h.Set(control.HeaderLate, "true")
	}
	if len(shot.Data) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	h.Set("Content-Type", shot.Format.MediaType())
	h.Set("Content-Length", strconv.Itoa(len(shot.Data)))
	w.Write(shot.Data) // the caller left when this fails
}

func stop(b Stopper) handler {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		var req control.StopRequest
		if err := decode(w, r, &req); err != nil {
			return nil, err
		}
		return struct{}{}, b.Stop(r.Context(), caller, req)
	}
}

func signal(b Signaller) handler {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		var req control.SignalRequest
		if err := decode(w, r, &req); err != nil {
			return nil, err
		}
		return struct{}{}, b.Signal(r.Context(), caller, req)
	}
}

func (s *Server) wait(b Waiter) handler {
	return func(_ http.ResponseWriter, r *http.Request, _ Caller) (any, error) {
		leave, err := s.limits.waits.enter(r.Context())
		if err != nil {
			return nil, err
		}
		defer leave()
		return b.Wait(r.Context())
	}
}

func (s *Server) exec(b Execer) handler {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
		var req control.ExecRequest
		if err := decode(w, r, &req); err != nil {
			return nil, err
		}
		if len(req.Argv) == 0 || req.Argv[0] == "" {
			return nil, &control.Error{Kind: control.BadRequest, Message: "exec needs argv: the program and its arguments."}
		}
		leave, err := s.limits.streams.enter(r.Context())
		if err != nil {
			return nil, err
		}
		defer leave()
		ctx, end := context.WithCancel(context.WithoutCancel(r.Context()))
		defer end()
		process, err := b.Exec(ctx, caller, req)
		if err != nil {
			return nil, err
		}
		conn, err := s.upgrade(w)
		if err != nil {
			process.Kill()
			process.Wait()
			return nil, err
		}
		defer s.track(conn)()
		defer conn.Close()
		if err := pump(conn, process); err != nil && !errors.Is(err, errCallerGone) {
			s.log.Warn("exec stream ended", "err", err)
		}
		return written{}, nil
	}
}
