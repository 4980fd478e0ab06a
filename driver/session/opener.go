// SPDX-License-Identifier: MPL-2.0

package session

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/botscreen/botscreen/driver/browser"
	"github.com/botscreen/botscreen/driver/desktop"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// OpenerName is the name by which programs of the desktop call our own binary to open an
// address: the panel's icon, xdg-open, a terminal's link. It asks the session, over a
// socket in the directory that its name stands in, which the screen's uid alone reaches.
// Nothing else is needed to be let in (W1), and nothing secret is.
const OpenerName = "botscreen-browser"

// openerSocket lies beside it.
const openerSocket = "browser"

const (
	// maxOpen bounds one request, in bytes.
	maxOpen = 16 << 10
	// openersAtOnce bounds what programs of the desktop ask at once.
	openersAtOnce = 16
	// openerPatience is how long a caller may take to say what it wants.
	openerPatience = 10 * time.Second
)

// openAnswer is what the session says to a caller.
type openAnswer struct {
	Error string `json:"error,omitempty"`
}

// serveOpener makes the opener's name and its socket, both anew, and answers until the
// session ends. It returns what the desktop shows of it.
func (s *session) serveOpener(plan *dialhome.Plan) (*desktop.Opener, error) {
	if plan.Browser == nil {
		return nil, nil
	}
	command := filepath.Join(plan.XDir, OpenerName)
	opener := &desktop.Opener{Command: command, Icon: browser.Icon(plan.Browser.Executable)}
	s.mu.Lock()
	serving := s.opening
	s.opening = true
	s.mu.Unlock()
	if serving {
		return opener, nil // it has been since before the desktop slept
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("make the browser's opener: %w", err)
	}
	socket := filepath.Join(plan.XDir, openerSocket)
	for _, path := range []string{command, socket} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("make the browser's opener: %w", err)
		}
	}
	if err := os.Symlink(self, command); err != nil {
		return nil, fmt.Errorf("make the browser's opener: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the browser's opener: %w", err)
	}
	go s.acceptOpeners(listener)
	return opener, nil
}

func (s *session) acceptOpeners(listener *net.UnixListener) {
	defer listener.Close()
	go func() {
		<-s.stopping.Done()
		_ = listener.Close()
	}()
	room := make(chan struct{}, openersAtOnce)
	for {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(shortestWait) // out of descriptors, for example
			continue
		}
		select {
		case room <- struct{}{}:
			go func() {
				defer func() { <-room }()
				s.answerOpener(conn)
			}()
		default:
			_ = conn.Close()
		}
	}
}

// answerOpener does what one caller asks: it shows one address.
func (s *session) answerOpener(conn *net.UnixConn) {
	defer conn.Close()
	if err := ofOurUID(conn); err != nil {
		fmt.Fprintf(s.log, "session: refused to open an address: %v\n", err)
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(openerPatience))
	request, err := readOpen(conn)
	if err == nil {
		_, err = s.openAddress(request.URL)
	}
	answer := openAnswer{}
	if err != nil {
		answer.Error = bounded(err.Error())
		fmt.Fprintf(s.log, "session: the browser was not opened: %v\n", err)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(openerPatience))
	_ = json.NewEncoder(conn).Encode(answer) // the caller left when this fails
}

// readOpen reads one request, a line of JSON.
func readOpen(r io.Reader) (dialhome.BrowserOpen, error) {
	var request dialhome.BrowserOpen
	line, err := bufio.NewReader(io.LimitReader(r, maxOpen)).ReadBytes('\n')
	if err != nil {
		return request, errors.New("read request: no whole line")
	}
	if json.Unmarshal(line, &request) != nil { // the cause would repeat the address
		return request, errors.New("read request: not JSON")
	}
	return request, nil
}

// ofOurUID lets in what the directory lets through already: the screen's own programs.
func ofOurUID(conn *net.UnixConn) error {
	cred, err := process.Peer(conn)
	if err != nil {
		return err
	}
	if int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("pid %d has uid %d", cred.Pid, cred.Uid)
	}
	return nil
}

// OpenerMain is the program of that name: it asks the session of this desktop to show an
// address or a file, and returns the exit code. A failure is said where it was asked from:
// in the terminal, else in a window of the desktop.
func OpenerMain(args []string) int {
	if len(args) == 2 && args[1] == noticeArgument {
		return noticeMain(os.Getenv(noticeVariable), os.Stdin, os.Stdout)
	}
	if len(args) > 2 {
		fmt.Fprintf(os.Stderr, "usage: %s [ADDRESS]\n", OpenerName)
		return 2
	}
	address := ""
	if len(args) == 2 {
		address = addressOf(args[1])
	}
	self, err := selfPath(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := askToOpen(self, address); err != nil {
		tell(self, fmt.Sprintf("The browser was not opened: %s.", strings.TrimSuffix(err.Error(), ".")))
		return 1
	}
	return 0
}

// selfPath is where the opener was called from: its socket lies beside it.
func selfPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	return exec.LookPath(name)
}

// addressOf takes what a desktop hands over: an address, or the path of a file.
func addressOf(word string) string {
	if strings.Contains(word, "://") || strings.HasPrefix(word, "about:") {
		return word
	}
	if path, err := filepath.Abs(word); err == nil {
		if _, err := os.Stat(path); err == nil {
			return (&url.URL{Scheme: "file", Path: path}).String()
		}
	}
	return word
}

func askToOpen(self, address string) error {
	conn, err := net.Dial("unix", filepath.Join(filepath.Dir(self), openerSocket))
	if err != nil {
		return errors.New("this screen's session does not answer")
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(browserLimit + openerPatience))
	if err := json.NewEncoder(conn).Encode(dialhome.BrowserOpen{URL: address}); err != nil {
		return err
	}
	var answer openAnswer
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return errors.New("this screen's session gave no answer")
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}
