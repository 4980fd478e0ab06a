// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// stream is one fixture of testdata/c2s.json: a client's bytes and what they are.
type stream struct {
	ID         string
	Negotiated struct {
		ExtMouse bool `json:"ext_mouse"`
	}
	Hex      string
	Messages []struct {
		Type       string
		Len, Count int
	}
	Verdict string
	Xvnc    string `json:"xvnc_1_12_all_forwarded"`
}

func (s stream) framing() Framing { return Framing{ExtendedButtons: s.Negotiated.ExtMouse} }

// refused is whether the framing refuses it. Where the fixture leaves a choice rule R3
// refuses gii, R4 bounds lists and fences, and sizes are not the framing's matter.
func (s stream) refused(t testing.TB) bool {
	switch s.Verdict {
	case "ok":
		return false
	case "close", "close-or-drop", "ok-or-limit", "ok-or-close":
		return true
	case "reject-or-clamp":
		return false
	}
	t.Errorf("%s: %q is no verdict", s.ID, s.Verdict)
	return false
}

func (s stream) lengths() []int {
	var list []int
	for _, m := range s.Messages {
		for range max(1, m.Count) {
			list = append(list, m.Len)
		}
	}
	return list
}

func streams(t testing.TB) []stream {
	text, err := os.ReadFile("testdata/c2s.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []stream
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

var repeated = regexp.MustCompile(`\(([0-9a-f]+)\)?\*([0-9]+)\)?`)

// bytes expands the fixture's "(hex)*n" and "(hex*n)".
func (s stream) bytes(t testing.TB) []byte {
	text := repeated.ReplaceAllStringFunc(s.Hex, func(part string) string {
		m := repeated.FindStringSubmatch(part)
		n, _ := strconv.Atoi(m[2])
		return strings.Repeat(m[1], n)
	})
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatalf("%s: %v", s.ID, err)
	}
	return b
}

func unhex(t testing.TB, text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// greeting is one fixture of testdata/s2c.json.
type greeting struct {
	ID    string
	Hex   string
	Steps []struct{ Dir, Hex string }
}

// side is all that one side says: "s" the server, "c" the client.
func (g greeting) side(t testing.TB, dir string) []byte {
	var b []byte
	for _, step := range g.Steps {
		if step.Dir == dir {
			b = append(b, unhex(t, step.Hex)...)
		}
	}
	return b
}

func greetings(t testing.TB) map[string]greeting {
	text, err := os.ReadFile("testdata/s2c.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []greeting
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	byID := map[string]greeting{}
	for _, g := range list {
		byID[g.ID] = g
	}
	return byID
}

// script is the other side of a connection: it has said everything in advance.
type script struct {
	said  *bytes.Reader
	heard bytes.Buffer
}

func newScript(said []byte) *script { return &script{said: bytes.NewReader(said)} }

func (s *script) Read(b []byte) (int, error)  { return s.said.Read(b) }
func (s *script) Write(b []byte) (int, error) { return s.heard.Write(b) }
