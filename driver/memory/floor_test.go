// SPDX-License-Identifier: MPL-2.0

package memory

import (
	"errors"
	"strings"
	"testing"
)

func available(mb int) Reading {
	return Reading{Known: true, AvailableBytes: uint64(mb) * MiB, HostBytes: uint64(mb) * MiB}
}

// MEM-05: the floor is an amount, on a large machine as on a small one.
func TestM1FloorAndM3Warning(t *testing.T) {
	for _, tc := range []struct {
		mb, promised, floor int
		refused, warned     bool
	}{
		{mb: 1535, floor: 1536, refused: true},
		{mb: 1536, floor: 1536, warned: true},
		{mb: 2047, floor: 1536, warned: true},
		{mb: 2048, floor: 1536},
		{mb: 2048, promised: 1, floor: 1536, warned: true},
		{mb: 2048, promised: 513, floor: 1536, refused: true},
		{mb: 100, promised: 5000, floor: 1, refused: true},
		{mb: 0, floor: 0},
		{mb: 0, promised: 100, floor: 0},
		// MEM-05: the floor is an amount, whatever the machine's size.
		{mb: 5836, floor: 1536},
		{mb: 1228, floor: 1536, refused: true},
	} {
		warning, err := CheckFloor(tc.floor, available(tc.mb), tc.promised)
		if (err != nil) != tc.refused || (warning != "") != tc.warned {
			t.Errorf("%+v: warning %q, error %v", tc, warning, err)
		}
	}
}

func TestFloorErrorText(t *testing.T) {
	r := available(1210)
	r.Limit = &Limit{Cgroup: "/nomad", Bytes: 4096 * MiB, WorkingSetBytes: 2886 * MiB}
	_, err := CheckFloor(1536, r, 0)
	var low *FloorError
	if !errors.As(err, &low) {
		t.Fatalf("got %v", err)
	}
	if want := "1210 MB available, floor 1536 MB (limit: cgroup /nomad)"; err.Error() != want {
		t.Errorf("got  %q\nwant %q", err, want)
	}
	if want := "Not enough memory to start a desktop: 1210 MB available within /nomad, 1536 MB asked for by `min_free_memory_mb`."; low.Sentence() != want {
		t.Errorf("got  %q\nwant %q", low.Sentence(), want)
	}
	low = &FloorError{Reading: available(2000), PromisedMB: 640, FloorMB: 1536}
	if s := low.Sentence(); !strings.Contains(s, "1360 MB available on this node (2000 MB less 640 MB for screens that are starting)") {
		t.Errorf("got %q", s)
	}
}
