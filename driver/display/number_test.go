// SPDX-License-Identifier: MPL-2.0

package display

import (
	"slices"
	"strings"
	"testing"
)

func TestD1Band(t *testing.T) {
	if got := DefaultBand.String(); got != "20-89" {
		t.Errorf("default band %s, want 20-89", got)
	}
	for text, want := range map[string]Band{
		"20-89":    {20, 89},
		"30":       {30, 30},
		"100-2000": {100, 2000},
		"98-100":   {98, 100},
	} {
		got, err := ParseBand(text)
		if err != nil || got != want {
			t.Errorf("ParseBand(%q) = %v, %v, want %v", text, got, err, want)
		}
		if again, err := ParseBand(got.String()); err != nil || again != got {
			t.Errorf("ParseBand(%v.String()) = %v, %v", got, again, err)
		}
	}
	for text, why := range map[string]string{
		"":           "not a band",
		"20-":        "not a band",
		"-20":        "not a band",
		"+20-30":     "not a band",
		"20-30-40":   "not a band",
		"a-b":        "not a band",
		"20 - 30":    "not a band",
		"999999":     "not a band",
		"89-20":      "ends before it begins",
		"0-89":       "the machine's own seats",
		"9-89":       "the machine's own seats",
		"60000-6553": "ends before",
		"20-59536":   "leaves 10 to 59535",
		"99":         "left to Xvfb",
	} {
		_, err := ParseBand(text)
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "displays") {
			t.Errorf("ParseBand(%q): %v, want it to say %q and to name the option", text, err, why)
		}
	}
}

func TestD1NinetyNineIsNeverPicked(t *testing.T) {
	band := Band{98, 101}
	got := slices.Collect(band.All())
	if want := []Number{98, 100, 101}; !slices.Equal(got, want) {
		t.Errorf("All = %v, want %v", got, want)
	}
	if band.Len() != 3 || band.Contains(99) || !band.Contains(98) || band.Contains(102) {
		t.Errorf("Len %d, Contains(99) %v, (98) %v, (102) %v", band.Len(), band.Contains(99), band.Contains(98), band.Contains(102))
	}
}

func FuzzParseBand(f *testing.F) {
	for _, s := range []string{"20-89", "99", "98-100", "-1", "20-", "00020-00030", "٢٠-٣٠"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseBand(s)
		if err != nil {
			return
		}
		if b.First < lowest || b.Last > highest || b.Len() < 1 {
			t.Fatalf("%q gave %v", s, b)
		}
		if got := len(slices.Collect(b.All())); got != b.Len() {
			t.Fatalf("%v: %d numbers, Len %d", b, got, b.Len())
		}
		if again, err := ParseBand(b.String()); err != nil || again != b {
			t.Fatalf("%v does not survive its text: %v, %v", b, again, err)
		}
	})
}
