// SPDX-License-Identifier: MPL-2.0

// Command relaybench measures the relay and the supervisor beside what they stand
// for, in processes of their own. It prints one JSON object a line; the command
// targets makes rows of them.
//
//	relaybench transport ROUNDS      the picture's way to a viewer, beside a bare loop and websockify
//	relaybench gate ROUNDS           the viewer's messages, beside a copy of the same bytes
//	relaybench probe SOCKET KIND     calls over and over, and says when it is refused and admitted
//	relaybench thumbnail SOCKET FILE one thumbnail of a screen
//	relaybench peer SOCKET           what transport's subjects relay between
//	relaybench serve KIND SOCKET     one of transport's subjects
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "relaybench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	command := append(args, "", "", "")[:3]
	rounds, _ := strconv.Atoi(command[1])
	switch {
	case command[0] == "transport" && rounds > 0:
		return benchTransport(rounds)
	case command[0] == "gate" && rounds > 0:
		return benchGate(rounds)
	case command[0] == "probe":
		return probe(command[1], command[2])
	case command[0] == "thumbnail":
		return thumbnail(command[1], command[2])
	case command[0] == "peer":
		return bePeer(command[1])
	case command[0] == "serve":
		return serve(command[1], command[2])
	}
	return fmt.Errorf("unknown arguments %q: see its package comment", args)
}

// say prints one result.
func say(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }
