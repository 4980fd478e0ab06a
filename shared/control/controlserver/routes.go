// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// handler answers one call. What it returns instead of writing is sent as JSON:
// the value, or the error.
type handler func(w http.ResponseWriter, r *http.Request, caller Caller) (any, error)

// written says that the handler has sent its answer itself.
type written struct{}

// routes builds the API out of the table and what the backend can do.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	paths := map[string][]string{}
	handlers := s.handlers()
	for _, route := range control.Routes {
		handle, ok := handlers[route.Call]
		if !ok {
			continue
		}
		mux.Handle(route.Method+" "+route.Path, s.guard(route, handle))
		paths[route.Path] = append(paths[route.Path], route.Method)
	}
	for pattern, methods := range paths {
		mux.Handle(pattern, s.refuse(http.StatusMethodNotAllowed, func(r *http.Request) string {
			return fmt.Sprintf("%s does not take %s, only %s.", r.URL.Path, r.Method, strings.Join(methods, ", "))
		}))
	}
	unknown := s.refuse(http.StatusNotFound, func(r *http.Request) string {
		return fmt.Sprintf("This supervisor has no call %s %s.", r.Method, screen.Distrust(r.URL.Path))
	})
	mux.Handle("/", unknown)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// Also for a body nobody wants: net/http reads it before the next call.
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		// ServeMux answers an unclean path with a redirect, which is no JSON.
		if path.Clean(r.URL.Path) != r.URL.Path || r.URL.Path == "*" {
			unknown.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// handlers maps the calls this backend can answer.
func (s *Server) handlers() map[control.Call]handler {
	calls := map[control.Call]handler{
		control.CallStatus: func(_ http.ResponseWriter, r *http.Request, caller Caller) (any, error) {
			status, err := s.backend.Status(r.Context(), caller)
			status.WireVersion = control.Version
			return status, err
		},
		control.CallTunnel: s.tunnel,
	}
	if b, ok := s.backend.(LeaseReader); ok {
		calls[control.CallLease] = func(_ http.ResponseWriter, r *http.Request, _ Caller) (any, error) {
			return b.Lease(r.Context())
		}
	}
	if b, ok := s.backend.(LeaseChanger); ok {
		calls[control.CallTake], calls[control.CallRelease] = take(b), release(b)
	}
	if b, ok := s.backend.(Asker); ok {
		calls[control.CallAsk], calls[control.CallAwaitAsk] = askPerson(b), s.awaitAsk(b)
	}
	if b, ok := s.backend.(EventSource); ok {
		calls[control.CallEvents] = s.events(b)
	}
	if b, ok := s.backend.(Screenshooter); ok {
		calls[control.CallScreenshot] = s.screenshot(b)
	}
	if b, ok := s.backend.(Actor); ok {
		calls[control.CallInput] = sending(s.limits.inputs, b.Input)
	}
	if b, ok := s.backend.(Desk); ok {
		s.addDesk(calls, b)
	}
	if b, ok := s.backend.(Opener); ok {
		calls[control.CallOpenBrowser], calls[control.CallCloseBrowser] = sending(s.limits.desks, b.OpenBrowser), bare(b.CloseBrowser)
	}
	if b, ok := s.backend.(Stopper); ok {
		calls[control.CallStop] = stop(b)
	}
	if b, ok := s.backend.(Signaller); ok {
		calls[control.CallSignal] = signal(b)
	}
	if b, ok := s.backend.(Auditor); ok {
		calls[control.CallAudit] = auditFile(b)
	}
	if b, ok := s.backend.(Sleeper); ok {
		calls[control.CallSleep], calls[control.CallWake] = bare(b.Sleep), bare(b.Wake)
	}
	if b, ok := s.backend.(Waiter); ok {
		calls[control.CallWait] = s.wait(b)
	}
	if b, ok := s.backend.(StatsReader); ok {
		calls[control.CallStats] = func(_ http.ResponseWriter, r *http.Request, _ Caller) (any, error) {
			return b.Stats(r.Context())
		}
	}
	if b, ok := s.backend.(Ticketer); ok {
		calls[control.CallMintTicket], calls[control.CallRevokeTicket] = mintTicket(b), revokeTicket(b)
	}
	if b, ok := s.backend.(Viewable); ok {
		calls[control.CallRFB] = s.rfb(b)
	}
	if b, ok := s.backend.(Browsable); ok {
		calls[control.CallCDP] = s.browse(b)
	}
	if b, ok := s.backend.(Execer); ok {
		calls[control.CallExec] = s.exec(b)
	}
	return calls
}

// guard checks who calls before the handler runs, and sends what it returns.
func (s *Server) guard(route control.Route, handle handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := callerOf(r.Context())
		if err := admit(route, caller, r); err != nil {
			s.sendError(w, r, err)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		answer, err := handle(w, r, caller)
		if err != nil {
			s.sendError(w, r, err)
		} else if _, done := answer.(written); !done {
			s.send(w, r, http.StatusOK, answer)
		}
	})
}

func admit(route control.Route, caller Caller, r *http.Request) error {
	if caller.Refusal != nil {
		return caller.Refusal
	}
	// Nothing of ours sends Origin: it is a web page that found the door.
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return &control.Error{Kind: control.Forbidden, Message: "Web pages may not call this interface."}
	}
	if !route.Allows(caller.Role) {
		return &control.Error{Kind: control.Forbidden,
			Message: fmt.Sprintf("This door has the role %q; %s needs one of %s.", caller.Role, route.Call, words(route.Roles)),
			Next:    "Use the operator's socket or an exec stream that allows more."}
	}
	if route.Stream && !wantsStream(r) {
		return &control.Error{Kind: control.BadRequest,
			Message: fmt.Sprintf("The call %s becomes a byte stream.", route.Call),
			Next:    "Send the headers Connection: Upgrade and Upgrade: " + control.UpgradeProtocol + "."}
	}
	return nil
}

func words(roles []screen.Role) string {
	list := make([]string, len(roles))
	for i, role := range roles {
		list[i] = string(role)
	}
	return strings.Join(list, ", ")
}

// refuse answers what is not in the table.
func (s *Server) refuse(status int, message func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refusal := &control.Error{Kind: control.BadRequest, Message: message(r),
			Next: "Compare the versions of the command and of the driver."}
		s.sendRefusal(w, r, status, refusal)
	})
}

func (s *Server) sendError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		err = &control.Error{Kind: control.Gone, Message: "The supervisor is ending or the caller left."}
	}
	var refusal *control.Error
	if !errors.As(err, &refusal) {
		s.log.Error("call without an answer", "path", r.URL.Path, "err", err)
		refusal = &control.Error{Kind: control.Internal, Message: "The supervisor could not do this: " + err.Error()}
	}
	s.sendRefusal(w, r, refusal.HTTPStatus(), refusal)
}

func (s *Server) sendRefusal(w http.ResponseWriter, r *http.Request, status int, refusal *control.Error) {
	s.refused.Add(1)
	body, err := refusal.MarshalBody()
	s.write(w, r, status, body, err)
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, status int, answer any) {
	body, err := json.Marshal(answer)
	s.write(w, r, status, body, err)
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, status int, body []byte, err error) {
	if err != nil {
		s.log.Error("answer cannot be written as JSON", "path", r.URL.Path, "err", err)
		http.Error(w, "answer cannot be written as JSON", http.StatusInternalServerError)
		return
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) // the caller left when this fails
}

// decode reads a JSON body strictly; an empty body is the zero value.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	if r.Body == nil || r.ContentLength == 0 {
		return nil
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return &control.Error{Kind: control.BadRequest, Message: "The body must have the Content-Type application/json."}
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err = d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("more than one value")
	}
	if err == nil {
		// The body has been read: a later deadline would pass for a lost caller.
		http.NewResponseController(w).SetReadDeadline(time.Time{})
		return nil
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		err = fmt.Errorf("larger than %d bytes", tooLarge.Limit)
	}
	return &control.Error{Kind: control.BadRequest, Message: "The body cannot be read: " + err.Error() + "."}
}
