// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// clean makes text from elsewhere harmless for a terminal: control and format
// characters are replaced, except for the ends of lines and tabs.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs):
			return '·'
		}
		return r
	}, s)
}

// line is clean for text that must stay on one line.
func line(s string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(clean(s))
}

// cleanWriter makes a stream harmless. It is for terminals; bytes that begin a
// character are kept until the rest comes.
type cleanWriter struct {
	w    io.Writer
	rest []byte
}

func (c *cleanWriter) Write(p []byte) (int, error) {
	text := append(c.rest, p...)
	end := len(text)
	for i := 1; i <= min(utf8.UTFMax-1, len(text)); i++ {
		if tail := text[len(text)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				end = len(text) - i
			}
			break
		}
	}
	c.rest = append([]byte(nil), text[end:]...)
	// A carriage return alone could hide what stands before it.
	if _, err := io.WriteString(c.w, clean(strings.ReplaceAll(string(text[:end]), "\r\n", "\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// terminal says whether a stream is one.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// printJSON writes a value for programs.
func (c *cli) printJSON(v any) error {
	enc := json.NewEncoder(c.out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// table writes rows under headings, aligned on a terminal and by tabs elsewhere.
func (c *cli) table(head []string, rows [][]string) error {
	if !terminal(c.out) {
		for _, row := range append([][]string{head}, rows...) {
			if _, err := fmt.Fprintln(c.out, strings.Join(row, "\t")); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(c.out, 0, 4, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// dash stands for what is not there.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return line(s)
}

// ago writes how long something is ago.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	switch d := time.Since(t); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
