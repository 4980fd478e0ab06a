// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func FuzzIgnoredSignals(f *testing.F) {
	f.Add([]byte("Name:\tx\nSigIgn:\t0000000000001001\n"))
	f.Add([]byte("\nSigIgn:\tffffffffffffffff"))
	f.Fuzz(func(t *testing.T, status []byte) {
		signals, err := ignoredSignals(status)
		if err != nil && signals != nil || len(signals) > 64 {
			t.Errorf("%v, %v", signals, err)
		}
	})
}

func FuzzCountNamed(f *testing.F) {
	f.Add("0: 2 0 00010000 0001 01 5 /run/x/rfb.sock\n", "/run/x/rfb.sock")
	f.Fuzz(func(t *testing.T, list, path string) {
		b, err := countNamed(strings.NewReader(list), path)
		if count := b.listeners + b.connections; err != nil || count > strings.Count(list, "\n")+1 {
			t.Errorf("%+v, %v", b, err)
		}
	})
}

func FuzzTablePorts(f *testing.F) {
	f.Add([]byte("   0: 0100007F:170C 00000000:0000 0A 0:0 0:0 0 1000 0 1 1\n"), 1000)
	f.Fuzz(func(t *testing.T, table []byte, uid int) {
		ports := tablePorts(table, uid)
		if len(ports) > bytes.Count(table, []byte("0A")) {
			t.Error("more listeners were seen than stand in the table")
		}
		for _, port := range ports {
			if port < 0 || port > 65535 {
				t.Errorf("port %d", port)
			}
		}
	})
}

func FuzzParseDiag(f *testing.F) {
	f.Add(diagAnswer(5900, 1000), 1000)
	f.Fuzz(func(t *testing.T, datagram []byte, uid int) {
		ports, _, err := parseDiag(datagram, uid)
		if len(ports)*diagAnswerSize > len(datagram) || err != nil && len(ports) > 0 {
			t.Errorf("%d ports in %d bytes, %v", len(ports), len(datagram), err)
		}
	})
}

func FuzzCleanLine(f *testing.F) {
	f.Add("(EE) \x1b[31mred\u202e\x00\xff\r\n")
	f.Fuzz(func(t *testing.T, raw string) {
		line := cleanLine(raw)
		if !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl) || strings.ContainsAny(line, "\u202a\u202e\u2066\u2069") {
			t.Errorf("%q is left as %q", raw, line)
		}
	})
}

func FuzzKeyboardLayout(f *testing.F) {
	f.Add("us,de(nodeadkeys),fr")
	f.Add("us\";};include \"/etc/passwd")
	f.Fuzz(func(t *testing.T, layout string) {
		if !keyboardForm.MatchString(layout) {
			return
		}
		source := keymapSource(layout)
		if strings.Count(source, `"`) != 10 || strings.Count(source, "\n") != 7 {
			t.Errorf("layout %q breaks out of the source: %s", layout, source)
		}
		layouts, variants := splitLayout(layout)
		if variants != "" && strings.Count(layouts, ",") != strings.Count(variants, ",") {
			t.Errorf("layout %q is split into %q and %q", layout, layouts, variants)
		}
	})
}

func FuzzBusAddress(f *testing.F) {
	f.Add("/run/a b,c;d=e%/bus")
	f.Fuzz(func(t *testing.T, path string) {
		value, found := strings.CutPrefix(busAddress(path), "unix:path=")
		if !found || strings.ContainsAny(value, ",;=: \"'\n\x00") {
			t.Errorf("%q has the address %q", path, value)
		}
	})
}
