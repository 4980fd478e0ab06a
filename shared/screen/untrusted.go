// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxUntrusted bounds text that came from inside a screen, in bytes.
const maxUntrusted = 256

// Untrusted is text from inside a screen or from an agent (window titles, log
// lines, reasons). It is made harmless when it is made, so that no edge can
// forget to (threats.md X32): control, format (bidi) and line-breaking characters
// are replaced and the length is bounded.
type Untrusted struct{ text string }

// Distrust wraps text from inside.
func Distrust(s string) Untrusted {
	var b strings.Builder
	for _, r := range s {
		if r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs) {
			r = '·'
		}
		if b.Len()+utf8.RuneLen(r) > maxUntrusted-len("…") {
			b.WriteString("…")
			break
		}
		b.WriteRune(r)
	}
	return Untrusted{b.String()}
}

func (u Untrusted) String() string { return u.text }

// MarshalText writes the harmless form.
func (u Untrusted) MarshalText() ([]byte, error) { return []byte(u.text), nil }

// UnmarshalText distrusts what it reads: the sender may be hostile too.
func (u *Untrusted) UnmarshalText(text []byte) error {
	*u = Distrust(string(text))
	return nil
}
