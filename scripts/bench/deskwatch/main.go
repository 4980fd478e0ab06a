// SPDX-License-Identifier: MPL-2.0

// Command deskwatch measures how long a desktop takes to be ready, with one
// yardstick for ours and for shell scripts.
//
//	deskwatch [-n 9] [-uid 61000] [-json] ours best.sh naive.sh …
//
// Each word is "ours" (driver/desktop in a process of its own) or the path of a
// script. They run in turn, n times each, in a fresh home as an unprivileged
// uid; deskwatch itself runs as root. With -at-once they run together, and the
// memory of each desktop is measured. For each run it prints the milliseconds
// from the start of the process to: X answers, window manager announced, panel
// painted, background painted, all of it (ready); and the processor time used
// until then. At the end: min/median/max and the paired ratio to the first word.
//
// A script finds in its environment HOME, XDG_RUNTIME_DIR, BENCH_DISPLAY (a
// free number), BENCH_X (a directory with Xauthority, for sockets),
// BENCH_GEOMETRY and BENCH_SEED (a complete seeded home). It keeps the desktop
// running until it gets TERM.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == sessionCommand {
		exit(runSession())
	}
	var b bench
	flag.IntVar(&b.runs, "n", 9, "runs of each")
	flag.IntVar(&b.atOnce, "at-once", 0, "start so many of each at once, in place of one after the other")
	flag.DurationVar(&b.settle, "settle", 0, "with -at-once: how long all run before their memory is measured")
	flag.IntVar(&b.uid, "uid", 61000+os.Getpid()%1000, "uid the desktops run as")
	flag.IntVar(&b.number, "display", 1000+os.Getpid()%8000, "the display before the first one that is tried")
	flag.BoolVar(&b.json, "json", false, "print one JSON object per run")
	flag.BoolVar(&b.verbose, "v", false, "show the output of the desktops")
	flag.StringVar(&b.shot, "shot", "", "directory for a picture of each desktop when it is ready")
	flag.Parse()
	b.subjects = flag.Args()
	if os.Getenv(insideMark) == "" {
		exit(enterNamespace(b.uid))
	}
	exit(b.run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "deskwatch:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
