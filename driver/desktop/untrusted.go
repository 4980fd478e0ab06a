// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/jezek/xgb"

	"github.com/botscreen/botscreen/driver/display"
)

// fileUntrusted is the authority file below XDir of programs that asked for no GUI.
const fileUntrusted = "Xauthority.untrusted"

// untrustedCookie remembers that the cookie has been made.
type untrustedCookie struct {
	mu   sync.Mutex // guards made
	made bool
}

// UntrustedEnv is Env for programs that need no window of their own. Their cookie is
// an untrusted one of the SECURITY extension: the server lets them neither read the
// screen nor see what is typed to others, nor send to other windows (rule X3). It
// lasts as long as the desktop.
//
// With an error the environment is Env without a display.
func (d *Desktop) UntrustedEnv() ([]string, error) {
	err := d.authorizeUntrusted()
	var env []string
	for _, entry := range d.Env() {
		switch name, _, _ := strings.Cut(entry, "="); {
		case name == "XAUTHORITY" && err == nil:
			env = append(env, "XAUTHORITY="+filepath.Join(d.plan.Options.XDir, fileUntrusted))
		case name == "XAUTHORITY", name == "DISPLAY" && err != nil:
		default:
			env = append(env, entry)
		}
	}
	return env, err
}

// authorizeUntrusted makes the cookie and its file, once.
func (d *Desktop) authorizeUntrusted() error {
	d.untrusted.mu.Lock()
	defer d.untrusted.mu.Unlock()
	if d.untrusted.made {
		return nil
	}
	cookie, err := d.view.generateUntrusted(d.Display())
	if err != nil {
		return fmt.Errorf("make untrusted cookie: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "" // the entry that matches any host is enough
	}
	err = display.WriteAuthority(d.place.dir, fileUntrusted, display.CookieEntries(d.Display(), host, cookie),
		display.Owner{UID: os.Geteuid(), GID: os.Getegid()})
	if err != nil {
		return fmt.Errorf("make untrusted cookie: %w", err)
	}
	d.untrusted.made = true
	return nil
}

// The SECURITY extension's request and its values ("Security Extension
// Specification", X Consortium, version 7.1, appendix A).
const (
	securityGenerateAuthorization = 1
	securityTimeout               = 1 << 0 // a bit of the value mask
	securityTrustLevel            = 1 << 1
	securityNever                 = 0 // a timeout that does not run out
	securityUntrusted             = 1 // a trust level
)

// generateUntrusted asks the server for a cookie of untrusted clients.
func (x *xclient) generateUntrusted(n display.Number) (display.Cookie, error) {
	reply, err := x.askExtension(extensionSecurity, generateRequest)
	if err != nil {
		return display.Cookie{}, err
	}
	secret, err := parseGenerated(reply)
	if err != nil {
		return display.Cookie{}, err
	}
	return cookieOf(n, secret)
}

// generateRequest asks for a cookie without an end, in units of 4 bytes:
//
//	opcode | 1 | length, 2 bytes | len name, 2 | len data, 2 | mask, 4 |
//	name, padded | no data | timeout, 4 | trust level, 4
func generateRequest(opcode byte) []byte {
	const name = "MIT-MAGIC-COOKIE-1"
	b := []byte{opcode, securityGenerateAuthorization, 0, 0}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(name)))
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, securityTimeout|securityTrustLevel)
	b = append(b, name...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	b = binary.LittleEndian.AppendUint32(b, securityNever)
	b = binary.LittleEndian.AppendUint32(b, securityUntrusted)
	binary.LittleEndian.PutUint16(b[2:], uint16(len(b)/4))
	return b
}

// parseGenerated reads the reply:
//
//	1 | unused | sequence, 2 | length, 4 | id, 4 | len data, 2 | unused, 18 | data, padded
func parseGenerated(reply []byte) ([]byte, error) {
	const header, lengthAt = 32, 12
	if len(reply) < header {
		return nil, fmt.Errorf("reply of %d bytes, want at least %d", len(reply), header)
	}
	size := int(xgb.Get16(reply[lengthAt:]))
	if len(reply)-header < size {
		return nil, fmt.Errorf("reply of %d bytes, want %d", len(reply), header+size)
	}
	return reply[header : header+size], nil
}

// cookieOf makes the secret a Cookie, which has no other way in than an authority
// entry: family, address, display, name and data, each with its length.
func cookieOf(n display.Number, secret []byte) (display.Cookie, error) {
	entries := display.CookieEntries(n, "", display.Cookie{})
	entry, err := display.EncodeAuthority(entries[len(entries)-1:])
	if err != nil {
		return display.Cookie{}, err
	}
	const cookieSize = 16
	if len(secret) != cookieSize || len(entry) < cookieSize {
		return display.Cookie{}, fmt.Errorf("cookie of %d bytes, want %d", len(secret), cookieSize)
	}
	copy(entry[len(entry)-cookieSize:], secret)
	parsed, err := display.ParseAuthority(entry)
	if err != nil {
		return display.Cookie{}, err
	}
	cookie, _ := parsed[0].Cookie()
	return cookie, nil
}
