// SPDX-License-Identifier: MPL-2.0

package process

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"testing"
)

// header begins a mapping in smaps.
var header = regexp.MustCompile("^[0-9a-f]+-[0-9a-f]+ ")

// residentProgram is how many KiB of the program's constant parts are mapped now.
func residentProgram(t *testing.T) (kib int) {
	t.Helper()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	ours := false
	for line := range bytes.Lines(text) {
		if header.Match(line) {
			_, _, ours = constantPart(line, program)
		}
		var n int
		if _, err := fmt.Sscanf(string(line), "Rss: %d kB", &n); err == nil && ours {
			kib += n
		}
	}
	return kib
}

// Target 11: a process that rests counts little of its program, and goes on as before.
func TestRest(t *testing.T) {
	before := residentProgram(t)
	if before == 0 {
		t.Skip("this kernel does not tell")
	}
	if err := Rest(); err != nil {
		t.Fatal(err)
	}
	after := residentProgram(t)
	t.Logf("%d KiB of the program before, %d after", before, after)
	if after > before*3/4 {
		t.Errorf("%d KiB of the program are mapped still, of %d", after, before)
	}
	if _, err := Observe(os.Getpid()); err != nil {
		t.Error(err)
	}
}

func TestConstantPart(t *testing.T) {
	for line, want := range map[string]bool{
		"00400000-0171b000 r-xp 00000000 fe:00 12   /a b/program\n":           true,
		"0171b000-02d00000 r--p 0131b000 fe:00 12   /a b/program\n":           true,
		"02d00000-02e00000 rw-p 02900000 fe:00 12   /a b/program\n":           false,
		"02d00000-02e00000 r--p 02900000 fe:00 12   /a b/program (deleted)\n": false,
		"02d00000-02e00000 r--p 02900000 fe:00 12   /a b/other\n":             false,
		"c000000000-c000400000 rw-p 00000000 00:00 0\n":                       false,
		"7ffc0000-7ffd0000 r-xp 00000000 00:00 0   [vdso]\n":                  false,
		"zz-00 r--p 0 fe:00 12 /a b/program\n":                                false,
		"":                                                                    false,
	} {
		if _, _, ok := constantPart([]byte(line), "/a b/program"); ok != want {
			t.Errorf("%q: %v", line, ok)
		}
	}
}

func FuzzConstantPart(f *testing.F) {
	f.Add([]byte("00400000-0171b000 r-xp 00000000 fe:00 12   /program\n"))
	f.Add([]byte("00400000-0171b000 r-xp 00000000 fe:00 12"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if start, end, ok := constantPart(line, "/program"); ok && start >= end {
			t.Errorf("%q: %x to %x", line, start, end)
		}
	})
}
