// SPDX-License-Identifier: MPL-2.0

package cgroup

import "testing"

// The figure of a group under pressure, and none where there is no file.
func TestMemoryStall(t *testing.T) {
	text := "some avg10=41.20 avg60=7.00 avg300=1.00 total=9\nfull avg10=23.90 avg60=5.00 avg300=1.00 total=7\n"
	g := fileGroup(t, map[string]string{"memory.pressure": text, "memory.current": "1"})
	if got := g.MemoryStall(); got != 23 {
		t.Errorf("%d %%, want 23", got)
	}
	if got := fileGroup(t, map[string]string{"memory.current": "1"}).MemoryStall(); got != 0 {
		t.Errorf("%d %% without a file", got)
	}
}

func FuzzParseFullStall(f *testing.F) {
	for _, seed := range []string{"", "full", "full avg10=NaN", "full avg10=1e99", "full avg10=-3", "some avg10=1\nfull avg10=99.99 x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if got := parseFullStall(text); got < 0 || got > 100 {
			t.Fatalf("%q is %d %%", text, got)
		}
	})
}
