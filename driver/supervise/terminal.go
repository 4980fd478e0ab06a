// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
)

// terminal is the master of a command's terminal. The sender shares its description
// and can make a read or write on it block for ever, deadline or not; a terminal knows
// no MSG_DONTWAIT. So two goroutines of its own touch it, and everybody else touches
// their pipes, which always close at once (X10). The goroutines end at the latest with
// the session, and the slot bounds how many there can be.
type terminal struct {
	file  *os.File
	close func() // ends everything, once

	in  *io.PipeWriter
	out *io.PipeReader

	mu      sync.Mutex // guards all below
	ended   bool       // end of input has been said
	midLine bool       // what was typed last is no whole line
}

// acceptTerminal takes the master of a terminal, or refuses what is none. It owns
// passed and slot in every case.
func acceptTerminal(passed *dialhome.Descriptor, slot *slot) (*terminal, error) {
	err := checkTerminal(passed.FD())
	var file *os.File
	if err == nil {
		file, err = pollable(passed)
	}
	passed.Close()
	if err != nil {
		slot.release()
		return nil, fmt.Errorf("accept terminal: %w", err)
	}
	t := &terminal{file: file}
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	t.in, t.out = inWrite, outRead
	var both sync.WaitGroup
	both.Go(func() {
		_, err := io.Copy(file, inRead)
		_ = inRead.CloseWithError(err)
	})
	both.Go(func() {
		_, err := io.Copy(outWrite, file)
		_ = outWrite.CloseWithError(endOfTerminal(err))
	})
	t.close = sync.OnceFunc(func() {
		_ = inRead.Close()
		_ = outRead.Close()
		_ = file.SetDeadline(time.Unix(1, 0)) // wakes whoever waits for readiness
		go func() {
			both.Wait()
			dialhome.Discard(file, slot.release)
		}()
	})
	return t, nil
}

// endOfTerminal is how the last program's leaving shows, see pty(7).
func endOfTerminal(err error) error {
	if errors.Is(err, unix.EIO) {
		return nil
	}
	return err
}

// checkTerminal reports anything but the master of a pseudo-terminal, by the kernel's
// word and without a call that the file behind the descriptor could hold up: only a
// terminal's master has this line, see proc_pid_fdinfo(5).
func checkTerminal(fd int) error {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return err
	}
	if !bytes.Contains(info, []byte("\ntty-index:")) {
		return errors.New("not the master of a terminal")
	}
	return nil
}

func (t *terminal) setSize(size control.TerminalSize) error {
	var failure error
	err := t.control(func(fd uintptr) {
		failure = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
	return errors.Join(err, failure)
}

func (t *terminal) control(do func(fd uintptr)) error {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(do)
}

func (t *terminal) input() io.WriteCloser { return terminalInput{t} }
func (t *terminal) output() io.ReadCloser { return terminalOutput{t} }

// terminalOutput takes the whole terminal along when it is closed.
type terminalOutput struct{ *terminal }

func (o terminalOutput) Read(b []byte) (int, error) { return o.out.Read(b) }

func (o terminalOutput) Close() error {
	o.terminal.close()
	return nil
}

// terminalInput ends input the way a person does: closing the terminal itself would
// take the output away too.
type terminalInput struct{ *terminal }

func (i terminalInput) Write(b []byte) (int, error) {
	n, err := i.in.Write(b)
	if n > 0 {
		i.mu.Lock()
		i.midLine = b[n-1] != '\n' && b[n-1] != '\r'
		i.mu.Unlock()
	}
	return n, err
}

// Close types ^D, VEOF of termios(3): it ends a line that was begun, and on an empty
// one it is end of file. It waits for nobody.
func (i terminalInput) Close() error {
	const endOfFile = 4
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
		return nil
	}
	i.ended = true
	keys := []byte{endOfFile}
	if i.midLine {
		keys = append(keys, endOfFile)
	}
	go func() {
		_, _ = i.in.Write(keys)
		_ = i.in.Close()
	}()
	return nil
}
