// SPDX-License-Identifier: MPL-2.0

package display

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// Cookie is the secret that lets a client onto a display, MIT-MAGIC-COOKIE-1 (Xsecurity(7)). It prints as
// [redacted] whatever the verb, so that it reaches no log, argument list or error.
type Cookie struct {
	secret [16]byte
}

// NewCookie makes a cookie that nobody can guess.
func NewCookie() Cookie {
	var c Cookie
	rand.Read(c.secret[:]) // never fails (crypto/rand)
	return c
}

const redacted = "[redacted]"

// Format writes [redacted] for every verb of package fmt.
func (c Cookie) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// String is [redacted].
func (c Cookie) String() string { return redacted }

// MarshalText is [redacted], which covers encoding/json and structured loggers.
func (c Cookie) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Family is the kind of address an authority entry is for (Xauth(3), the X protocol's host families).
type Family uint16

const (
	// FamilyLocal is the machine with the entry's host name, by a Unix socket.
	FamilyLocal Family = 256
	// FamilyWild matches whatever the client connects to; it has no address.
	FamilyWild Family = 65535
)

const cookieName = "MIT-MAGIC-COOKIE-1"

// Entry is one entry of an Xauthority file.
type Entry struct {
	Family Family
	// Address is the host name for FamilyLocal, empty for FamilyWild.
	Address string
	// Display is the number's digits; empty matches every display.
	Display string
	// Name is the protocol, MIT-MAGIC-COOKIE-1 for ours.
	Name string
	// data is the secret; see Cookie.
	data []byte
}

// Cookie is the entry's secret, if it is a cookie of the right size.
func (e Entry) Cookie() (Cookie, bool) {
	var c Cookie
	if e.Name != cookieName || len(e.data) != len(c.secret) {
		return Cookie{}, false
	}
	copy(c.secret[:], e.data)
	return c, true
}

// Format writes the entry without its secret.
func (e Entry) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "{family %d %q display %q %s %s}", e.Family, e.Address, e.Display, e.Name, redacted)
}

// CookieEntries are the entries that let clients of hostname, and clients in a container with another host name,
// onto display n with the cookie.
func CookieEntries(n Number, hostname string, c Cookie) []Entry {
	digits := strconv.Itoa(int(n))
	return []Entry{
		{Family: FamilyLocal, Address: hostname, Display: digits, Name: cookieName, data: c.secret[:]},
		{Family: FamilyWild, Display: digits, Name: cookieName, data: c.secret[:]},
	}
}

// EncodeAuthority writes entries in the format of an Xauthority file (Xau library, AuRead.c), every number and
// length a big-endian 16-bit word:
//
//	family | len address | len display | len name | len data
func EncodeAuthority(entries []Entry) ([]byte, error) {
	var out []byte
	for _, e := range entries {
		out = binary.BigEndian.AppendUint16(out, uint16(e.Family))
		for _, field := range [][]byte{[]byte(e.Address), []byte(e.Display), []byte(e.Name), e.data} {
			if len(field) > 0xffff {
				return nil, fmt.Errorf("encode Xauthority: a field of %d bytes, at most 65535", len(field))
			}
			out = binary.BigEndian.AppendUint16(out, uint16(len(field)))
			out = append(out, field...)
		}
	}
	return out, nil
}

// maxAuthority is far above any honest file; one entry of ours has about 60 bytes.
const maxAuthority = 64 << 10

// ParseAuthority reads an Xauthority file of at most 64 KiB. A file that ends inside an entry is an error.
func ParseAuthority(data []byte) ([]Entry, error) {
	if len(data) > maxAuthority {
		return nil, fmt.Errorf("parse Xauthority: %d bytes, at most %d", len(data), maxAuthority)
	}
	var entries []Entry
	for rest := data; len(rest) > 0; {
		if len(rest) < 2 {
			return nil, errTruncated(len(data))
		}
		e := Entry{Family: Family(binary.BigEndian.Uint16(rest))}
		rest = rest[2:]
		var fields [4][]byte
		for i := range fields {
			if len(rest) < 2 {
				return nil, errTruncated(len(data))
			}
			size := int(binary.BigEndian.Uint16(rest))
			rest = rest[2:]
			if len(rest) < size {
				return nil, errTruncated(len(data))
			}
			fields[i], rest = rest[:size], rest[size:]
		}
		e.Address, e.Display, e.Name = string(fields[0]), string(fields[1]), string(fields[2])
		e.data = append([]byte(nil), fields[3]...)
		entries = append(entries, e)
	}
	return entries, nil
}

func errTruncated(size int) error {
	return fmt.Errorf("parse Xauthority: it ends after %d bytes inside an entry", size)
}

// Owner is who gets a file that root writes for somebody else.
type Owner struct {
	UID, GID int
}

// WriteAuthority writes the Xauthority file name into dir, mode 0600, owned by owner, in one step: a reader sees
// the old file or the new one.
//
// dir is a descriptor because the directory belongs to the desktop, which may swap anything below it; what is
// there under that name, a link too, is replaced and not followed.
func WriteAuthority(dir *os.Root, name string, entries []Entry, owner Owner) (err error) {
	data, err := EncodeAuthority(entries)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write Xauthority %s: %w", name, err)
		}
	}()
	temporary := "." + name + "-" + randomHex(8)
	f, err := dir.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.Remove(temporary))
		}
	}()
	if err := writeFor(f, data, owner); err != nil {
		return err
	}
	return dir.Rename(temporary, name)
}

// writeFor fills and closes f. The owner changes last: until then only we can open it.
func writeFor(f *os.File, data []byte, owner Owner) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Chmod(0o600)
	}
	if err == nil && (owner.UID != os.Geteuid() || owner.GID != os.Getegid()) {
		err = f.Chown(owner.UID, owner.GID)
	}
	return errors.Join(err, f.Close())
}
