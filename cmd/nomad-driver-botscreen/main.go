// SPDX-License-Identifier: MPL-2.0

// nomad-driver-botscreen is Nomad's task driver for desktops. Nomad starts it without
// arguments; the driver starts it again, from a copy, as supervisor, session and their
// helpers, so that one static binary is everything a screen needs.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/botscreen/botscreen/driver/browser"
	"github.com/botscreen/botscreen/driver/desktop"
	"github.com/botscreen/botscreen/driver/plugin"
	"github.com/botscreen/botscreen/driver/session"
	"github.com/botscreen/botscreen/driver/session/pipe"
	"github.com/botscreen/botscreen/driver/supervise"
	"github.com/botscreen/botscreen/shared/nomadplugin"
)

const usage = `nomad-driver-botscreen is a Nomad task driver plugin: put it into the agent's plugin_dir and
add a block  plugin "nomad-driver-botscreen" { config { … } }  to the agent's configuration.

  nomad-driver-botscreen                  run as plugin (started by a Nomad agent)
  nomad-driver-botscreen doctor [-json]   say what this node lacks for screens and how to get it
  nomad-driver-botscreen profile-rm PROFILE   say what a profile has on this node; with -yes, remove it
  nomad-driver-botscreen version          print the version

The driver itself also starts it as: supervise, session --dial PATH, pipe --dial|--serve PATH,
` + desktop.FenceProbeCommand + `.
`

func main() {
	// The desktop calls it by this name to open an address.
	if filepath.Base(os.Args[0]) == session.OpenerName {
		os.Exit(session.OpenerMain(os.Args))
	}
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 0 {
		return servePlugin()
	}
	switch args[0] {
	case "supervise":
		return supervise.Main()
	case "session":
		if len(args) != 3 || args[1] != "--dial" {
			return misuse("session needs --dial PATH")
		}
		return session.Main(args[2])
	case session.ArchiveCommand:
		return session.ArchiveMain(args[1:])
	case browser.ProbeCommand:
		return 0 // that it runs at all is the answer
	case "pipe":
		return pipeHalf(args[1:])
	case desktop.FenceProbeCommand:
		return desktop.FenceProbeMain(args[1:])
	case "doctor":
		return plugin.Doctor(args[1:], os.Stdout, os.Stderr)
	case "profile-rm":
		return plugin.RemoveProfile(args[1:], os.Stdout, os.Stderr)
	case "version", "--version", "-version":
		fmt.Println(plugin.Version)
		return 0
	case "help", "--help", "-h":
		fmt.Print(usage)
		return 0
	}
	return misuse(fmt.Sprintf("unknown command %q", args[0]))
}

// pipeHalf is one half of the pipe to an engine on another kernel.
func pipeHalf(args []string) int {
	if len(args) == 2 && args[0] == "--dial" {
		return pipe.NodeMain(args[1])
	}
	if len(args) == 2 && args[0] == "--serve" {
		return pipe.InsideMain(args[1])
	}
	return misuse("pipe needs --dial PATH or --serve PATH")
}

func misuse(reason string) int {
	fmt.Fprintf(os.Stderr, "nomad-driver-botscreen: %s\n\n%s", reason, usage)
	return 2
}

func servePlugin() int {
	log := nomadplugin.NewLogger("nomad-driver-botscreen")
	driver, err := plugin.New(log)
	if err != nil {
		log.Error("cannot start the plugin", "error", err)
		return 1
	}
	nomadplugin.Serve(driver, log)
	return 0
}
