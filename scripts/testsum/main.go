// SPDX-License-Identifier: MPL-2.0

// testsum reads `go test -json` on stdin, prints what failed with its output, a line for
// each package, and closes with what was skipped and why and how many tests ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// event is one line of test2json, see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

type summary struct {
	passed, failed, skipped int
	output                  map[string][]string // of tests and packages still open
	skips                   []string
}

func main() { os.Exit(run()) }

func run() int {
	s := summary{output: map[string][]string{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text()) // a build failure speaks plainly
			continue
		}
		s.add(e)
	}
	if len(s.skips) > 0 {
		fmt.Printf("\nSkipped, and why:\n%s\n", strings.Join(s.skips, "\n"))
	}
	fmt.Printf("\n%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	if s.failed > 0 || s.passed == 0 || lines.Err() != nil {
		return 1
	}
	return 0
}

func (s *summary) add(e event) {
	key := e.Package + "\x00" + e.Test
	switch e.Action {
	case "output", "build-output":
		s.output[key] = append(s.output[key], e.Output)
		return
	case "pass":
		if e.Test != "" {
			s.passed++
		} else {
			fmt.Printf("ok    %s %.1fs\n", e.Package, e.Elapsed)
		}
	case "fail", "build-fail":
		s.failed++
		fmt.Printf("FAIL  %s %s\n%s", e.Package, e.Test, strings.Join(s.output[key], ""))
	case "skip":
		if e.Test != "" {
			s.skipped++
			s.skips = append(s.skips, fmt.Sprintf("  %s %s: %s", e.Package, e.Test, reason(s.output[key])))
		}
	default:
		return
	}
	delete(s.output, key)
}

// reason is the text a test gave to t.Skip.
func reason(output []string) string {
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			return line
		}
	}
	return "no reason given"
}
