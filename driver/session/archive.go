// SPDX-License-Identifier: MPL-2.0

package session

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/botscreen/botscreen/driver/browser"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// ArchiveCommand is the command of our own binary that moves a browser's profile.
const ArchiveCommand = "browser-profile"

// archiveWords are commands that no image has: they run our own binary.
var archiveWords = map[string]string{
	control.CommandExportProfile: "export",
	control.CommandImportProfile: "import",
}

// archiveOrder is what the program has to know; it stands in its arguments, and holds
// nothing secret.
type archiveOrder struct {
	Folder  string                `json:"folder"`
	Browser screen.BrowserOptions `json:"browser"`
}

// archiveArgv is the command behind one of our words.
func (s *session) archiveArgv(words []string) ([]string, error) {
	way, ok := archiveWords[words[0]]
	if !ok {
		return words, nil
	}
	s.mu.Lock()
	plan := s.plan
	s.mu.Unlock()
	if plan == nil || plan.Browser == nil {
		return nil, errNoBrowser
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	options := screen.BrowserOptions{Executable: plan.Browser.Executable, Sandbox: plan.Browser.Sandbox} // no address: it may hold a password
	order, err := json.Marshal(archiveOrder{Folder: browser.Folder(plan.Home), Browser: options})
	return []string{self, ArchiveCommand, way, string(order)}, err
}

// ArchiveMain writes the profile's archive to standard output, or reads one from standard
// input, as the desktop's uid, and returns the exit code.
func ArchiveMain(args []string) int {
	var order archiveOrder
	if len(args) != 2 || json.Unmarshal([]byte(args[1]), &order) != nil {
		fmt.Fprintf(os.Stderr, "usage: %s export|import ORDER\n", ArchiveCommand)
		return 2
	}
	var err error
	switch args[0] {
	case "export":
		err = browser.Export(order.Folder, os.Environ(), os.Stdout)
	case "import":
		o := order.Browser
		err = browser.Import(context.Background(), browser.Options{
			Executable: o.Executable, Sandbox: o.Sandbox, Profile: order.Folder, Env: os.Environ(), Starter: plainStarter{},
		}, os.Stdin)
		_, _ = io.Copy(io.Discard, os.Stdin) // the sender learns why from us, not from a broken pipe
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err)
		return 1
	}
	return 0
}

// plainStarter starts programs of a process that reaps nobody else's.
type plainStarter struct{}

func (plainStarter) Start(c *exec.Cmd) error { return c.Start() }
func (plainStarter) Wait(c *exec.Cmd) error  { return c.Wait() }
