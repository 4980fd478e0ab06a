// SPDX-License-Identifier: MPL-2.0

package session

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/botscreen/botscreen/shared/screen"
)

// A person who clicks an icon reads no log: what kept the browser from opening is shown in
// a window of the terminal, which every image of ours has. Nothing else that shows
// messages is sure to be there.

const (
	// noticeArgument makes the opener the program in that window.
	noticeArgument = "--notice"
	// noticeVariable has the text. Arguments are everybody's to read.
	noticeVariable = "BOTSCREEN_NOTICE"
	// noticeLock lies beside the opener: one window at a time is enough.
	noticeLock = "notice.lock"
	// noticeTerminal is the program that has the window.
	noticeTerminal = "xfce4-terminal"

	noticeTitle   = "Web Browser"
	noticeColumns = 76
	noticeRows    = 12
)

// tell says a sentence to whoever called the opener: in their terminal, else on the desktop.
func tell(self, sentence string) {
	fmt.Fprintln(os.Stderr, sentence)
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return
	}
	if err := showNotice(self, sentence); err != nil {
		fmt.Fprintf(os.Stderr, "Nobody at the desktop was told: %v.\n", err)
	}
}

// showNotice opens a window that says text, and does not wait for it. Where one is open
// already, or there is no terminal, nothing more is shown.
func showNotice(self, text string) error {
	terminal, err := exec.LookPath(noticeTerminal)
	if err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(filepath.Dir(self), noticeLock), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // the window's process has it, too
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil // somebody is being told
	}
	if err != nil {
		return err
	}
	cmd := exec.Command(terminal, "--disable-server", "--hide-menubar", "--hide-toolbar", "--hide-scrollbar",
		fmt.Sprintf("--geometry=%dx%d", noticeColumns, noticeRows), "--title", noticeTitle, "--execute", self, noticeArgument)
	cmd.Env = append(os.Environ(), noticeVariable+"="+text)
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it stays when its starter goes
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

// noticeMain is the program in the window: it says its text and ends when somebody has
// pressed Enter or closed the window.
func noticeMain(text string, in io.Reader, out io.Writer) int {
	_, err := fmt.Fprintf(out, "\n%s\n  Press Enter to close this window. ", wrapped(text, noticeColumns-4))
	if err == nil {
		_, err = bufio.NewReader(in).ReadString('\n')
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 1
	}
	return 0
}

// wrapped breaks a text between words into lines of at most width runes, or one word,
// without what would command a terminal: a browser's last words may be in it (X32).
func wrapped(text string, width int) string {
	var b strings.Builder
	used := 0
	for _, word := range strings.Fields(text) {
		word = screen.Distrust(word).String()
		length := len([]rune(word))
		switch {
		case used == 0:
			b.WriteString("  ")
		case used+1+length > width:
			b.WriteString("\n  ")
			used = 0
		default:
			b.WriteString(" ")
			used++
		}
		b.WriteString(word)
		used += length
	}
	b.WriteString("\n")
	return b.String()
}
