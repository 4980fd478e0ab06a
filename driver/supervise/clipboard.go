// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/screen"
)

const (
	// wipePatience is how long a change of hands waits for the clipboard to be wiped. It
	// is wiped later then, and nobody is served from it before.
	wipePatience = 200 * time.Millisecond
	// wipeTimeout and wipePause bound one try and the time to the next.
	wipeTimeout, wipePause = 3 * time.Second, 250 * time.Millisecond
	// copiesPerSecond and copyBurst bound what is sent to the holder of what programs copy.
	copiesPerSecond, copyBurst = 1, 3
)

// clipboard is what the supervisor knows of the desktop's: whether it was wiped since the
// last change of hands (rule L8).
type clipboard struct {
	mu    sync.Mutex    // guards wiped
	wiped chan struct{} // closed once it is; nil: nobody has held yet
}

// wipeClipboard begins to wipe and returns what waits for it, for a while. It goes on
// until it is done or the desktop has ended: only then is a clipboard served again.
func (s *supervisor) wipeClipboard() (wait func()) {
	s.mu.Lock()
	ready := s.state == screen.Ready
	s.mu.Unlock()
	if !ready {
		return func() {} // there is no desktop, or none any more
	}
	done := make(chan struct{})
	s.clip.mu.Lock()
	s.clip.wiped = done
	s.clip.mu.Unlock()
	begin := time.Now()
	go s.wipeUntilDone(done)
	return func() {
		timer := time.NewTimer(wipePatience - time.Since(begin))
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
			s.log.Warn("the clipboard is not wiped yet; it is not served before")
		}
	}
}

func (s *supervisor) wipeUntilDone(done chan struct{}) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), wipeTimeout)
		err := s.askDesk(ctx, question{op: dialhome.OpWipeClipboard, body: struct{}{}, urgent: true}, nil)
		cancel()
		if err == nil || noDesktop(err) {
			close(done)
			return
		}
		select {
		case <-s.ended:
			return
		case <-s.link.done():
			return
		case <-time.After(wipePause):
		}
		s.clip.mu.Lock()
		newest := s.clip.wiped == done
		s.clip.mu.Unlock()
		if !newest {
			close(done) // the next change of hands wipes it
			return
		}
	}
}

// clipboardServed refuses while the clipboard may hold what belongs to the last holder,
// and where the job wants none.
func (s *supervisor) clipboardServed(what string) error {
	if s.config.Takeover.Clipboard == screen.ClipboardOff {
		return &control.Error{Kind: control.Forbidden,
			Message: fmt.Sprintf(`Cannot %s: this screen has none (clipboard = "off" in its job).`, what), Next: "Type the text instead."}
	}
	s.clip.mu.Lock()
	wiped := s.clip.wiped
	s.clip.mu.Unlock()
	if wiped == nil {
		return nil
	}
	select {
	case <-wiped:
		return nil
	default:
		return &control.Error{Kind: control.Busy,
			Message: fmt.Sprintf("Cannot %s: it could not be wiped yet since the screen changed hands.", what), Next: "Try again in a moment."}
	}
}

// Clipboard reads the clipboard for the agent. What was copied under another lease is
// neither there any more nor given out (rules L6, L8).
func (s *supervisor) Clipboard(ctx context.Context, _ controlserver.Caller) (control.Clipboard, error) {
	const what = "read the clipboard"
	var text string
	seen, err := s.desk(ctx, what, func() (err error) {
		if err = s.clipboardServed(what); err == nil {
			text, err = s.readClipboard(ctx)
		}
		return err
	})
	if err != nil {
		return control.Clipboard{}, err
	}
	return control.Clipboard{Epoch: seen, Text: text}, nil
}

// SetClipboard sets it for the agent, under the epoch it saw.
func (s *supervisor) SetClipboard(ctx context.Context, _ controlserver.Caller, req control.ClipboardRequest) error {
	if err := s.admit(req.Epoch); err != nil {
		return err
	}
	err := s.putClipboard(ctx, "set the clipboard", req.Text)
	if refusal := s.admit(req.Epoch); refusal != nil {
		s.wipeClipboard() // the text may have come after the wipe of the change of hands
		return refusal
	}
	return err
}

// putClipboard makes a text the desktop's clipboard, which is a use of the screen.
func (s *supervisor) putClipboard(ctx context.Context, what, text string) error {
	if err := checkClipboard(text); err != nil {
		return err
	}
	end, err := s.begin(ctx, what)
	if err != nil {
		return err
	}
	defer end()
	if err := s.clipboardServed(what); err != nil {
		return err
	}
	if err := s.setClipboard(ctx, text); err != nil {
		return refusalOf(what, err)
	}
	return nil
}

func checkClipboard(text string) error {
	want := ""
	switch {
	case len(text) > control.MaxClipboard:
		want = fmt.Sprintf("it has %d bytes, at most %d", len(text), control.MaxClipboard)
	case !utf8.ValidString(text):
		want = "it must be UTF-8"
	default:
		return nil
	}
	return &control.Error{Kind: control.BadRequest, Message: "The text cannot be put on the clipboard: " + want + "."}
}

// pasteByPolicy is how a holder's text reaches the clipboard; nil where the job wants none.
func (s *supervisor) pasteByPolicy() func(context.Context, string) error {
	if s.config.Takeover.Clipboard == screen.ClipboardOff {
		return nil
	}
	return s.paste
}

func (s *supervisor) paste(ctx context.Context, text string) error {
	before, _ := s.keeper.Lease()
	if !before.Held() {
		return nil // it came too late
	}
	err := s.putClipboard(ctx, "paste", text)
	if after, _ := s.keeper.Lease(); after.Epoch != before.Epoch {
		s.wipeClipboard()
	}
	return err
}

// onCopy hands what a program copied to the person in control, where the job wants that,
// and to nobody else (X24).
func (s *supervisor) onCopy() {
	if s.config.Takeover.Clipboard != screen.ClipboardBoth || !s.copies.take(time.Now()) {
		return
	}
	held, _ := s.keeper.Lease()
	if !held.Held() || s.clipboardServed("copy") != nil {
		return
	}
	go func() { // the reader of the link must go on
		text, err := s.readClipboard(context.Background())
		if err != nil || text == "" {
			return
		}
		s.relay.Copied(held.Epoch, text)
	}()
}

func (s *supervisor) readClipboard(ctx context.Context) (string, error) {
	file, err := clipboardFile("")
	if err != nil {
		return "", err
	}
	defer file.Close()
	var told dialhome.Text
	err = s.askDesk(ctx, question{op: dialhome.OpReadClipboard, body: struct{}{}, files: []*os.File{file}}, &told)
	if err != nil {
		return "", err
	}
	if told.Bytes < 0 || told.Bytes > dialhome.MaxClipboard {
		return "", errors.New("the session says an impossible length")
	}
	text := make([]byte, told.Bytes)
	if _, err := file.ReadAt(text, 0); err != nil {
		return "", fmt.Errorf("read clipboard: %w", err)
	}
	if !utf8.Valid(text) {
		return "", errors.New("the session gave what is no text")
	}
	return string(text), nil
}

func (s *supervisor) setClipboard(ctx context.Context, text string) error {
	file, err := clipboardFile(text)
	if err != nil {
		return err
	}
	defer file.Close()
	return s.askDesk(ctx, question{op: dialhome.OpSetClipboard, body: dialhome.Text{Bytes: len(text)}, files: []*os.File{file}}, nil)
}

// clipboardFile is a file of ours in memory that holds a text, or has room for one: what a
// session passes is not read (X10), and it cannot make ours larger.
func clipboardFile(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("clipboard", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("carry clipboard: %w", err)
	}
	f := os.NewFile(uintptr(fd), "clipboard")
	size, seals := int64(len(text)), unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL
	if text == "" {
		size = dialhome.MaxClipboard
	}
	err = f.Truncate(size)
	if err == nil && text != "" {
		_, err = f.WriteAt([]byte(text), 0)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("carry clipboard: %w", err)
	}
	return f, nil
}
