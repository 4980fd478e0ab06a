// SPDX-License-Identifier: MPL-2.0

package display

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

func TestS2CookieIsNeverPrinted(t *testing.T) {
	c := NewCookie()
	if c == NewCookie() || c == (Cookie{}) {
		t.Fatal("cookies repeat")
	}
	secret := hex.EncodeToString(c.secret[:])
	entries := CookieEntries(20, "node-1", c)
	var printed bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&printed, nil))
	log.Info("x", "cookie", c, "pointer", &c, "entries", entries)
	slog.New(slog.NewTextHandler(&printed, nil)).Info("x", "cookie", c, "entry", entries[0])
	for _, verb := range []string{"%v", "%+v", "%#v", "%x", "%X", "%s", "%q", "%d"} {
		fmt.Fprintf(&printed, verb+" ", c)
		fmt.Fprintf(&printed, verb+" ", &c)
		fmt.Fprintf(&printed, verb+" ", entries)
		fmt.Fprintf(&printed, verb+" ", struct{ C Cookie }{c})
		fmt.Fprintf(&printed, verb+" ", fmt.Errorf("start: %v", entries[1]))
	}
	if err := json.NewEncoder(&printed).Encode(struct {
		C Cookie
		E []Entry
	}{c, entries}); err != nil {
		t.Fatal(err)
	}
	text := strings.ToLower(printed.String())
	decimal := strings.Trim(fmt.Sprint(c.secret[:]), "[]")
	for _, form := range []string{secret, decimal, string(c.secret[:]), fmt.Sprintf("%#v", c.secret[:4])} {
		if strings.Contains(text, strings.ToLower(form)) {
			t.Errorf("the cookie was printed: %s", text)
		}
	}
	if !strings.Contains(text, redacted) {
		t.Error("nothing says [redacted]")
	}
}

func TestAuthorityRoundTrip(t *testing.T) {
	c := NewCookie()
	want := CookieEntries(20, "node-1", c)
	data, err := EncodeAuthority(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseAuthority(data)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, %v, want %v", got, err, want)
	}
	if again, ok := got[1].Cookie(); !ok || again != c {
		t.Error("the cookie does not survive")
	}
	if _, ok := (Entry{Name: "XDM-AUTHORIZATION-1", data: c.secret[:]}).Cookie(); ok {
		t.Error("another protocol's secret is no cookie")
	}
	for n := 1; n < len(data); n++ {
		entries, err := ParseAuthority(data[:n])
		if err == nil && len(entries) != 1 {
			t.Errorf("cut after %d bytes: %v", n, entries)
		}
	}
	if _, err := ParseAuthority(make([]byte, maxAuthority+1)); err == nil {
		t.Error("a file of more than 64 KiB was parsed")
	}
	if _, err := EncodeAuthority([]Entry{{Address: strings.Repeat("a", 1<<16)}}); err == nil {
		t.Error("a field of 65536 bytes was encoded")
	}
}

// The format is what X's own tool reads and writes.
func TestAuthorityAgainstXauth(t *testing.T) {
	if _, err := exec.LookPath("xauth"); err != nil {
		t.Skip("xauth is not installed")
	}
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	c := NewCookie()
	me := Owner{os.Geteuid(), os.Getegid()}
	if err := WriteAuthority(dir, "Xauthority", CookieEntries(20, "node-1", c), me); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir.Name(), "Xauthority")
	out, err := exec.Command("xauth", "-f", path, "nlist").CombinedOutput()
	if err != nil {
		t.Fatalf("xauth: %v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	secret := hex.EncodeToString(c.secret[:])
	if len(lines) != 2 || !strings.HasSuffix(lines[0], secret) || !strings.HasSuffix(lines[1], secret) {
		t.Fatalf("xauth does not read both entries")
	}
	theirs := filepath.Join(dir.Name(), "theirs")
	add := exec.Command("xauth", "-f", theirs, "add", "node-1/unix:21", ".", secret)
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("xauth add: %v: %s", err, out)
	}
	data, err := os.ReadFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := ParseAuthority(data)
	if err != nil || len(entries) != 1 || entries[0].Family != FamilyLocal || entries[0].Display != "21" {
		t.Fatalf("theirs: %v, %v", entries, err)
	}
	if got, ok := entries[0].Cookie(); !ok || got != c {
		t.Error("their cookie is read wrong")
	}
}

func TestS2AuthorityFileModeOwnerAndLinks(t *testing.T) {
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	owner := Owner{os.Geteuid(), os.Getegid()}
	if os.Geteuid() == 0 {
		owner = Owner{1001, 1002}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	writeFile(t, outside, "untouched")
	if err := dir.Symlink(outside, "Xauthority"); err != nil {
		t.Fatal(err)
	}
	if err := WriteAuthority(dir, "Xauthority", CookieEntries(20, "n", NewCookie()), owner); err != nil {
		t.Fatal(err)
	}
	info, err := dir.Lstat("Xauthority")
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 || int(stat.Uid) != owner.UID || int(stat.Gid) != owner.GID {
		t.Errorf("mode %v, owner %d:%d, want a regular file 0600 of %v", info.Mode(), stat.Uid, stat.Gid, owner)
	}
	if data, _ := os.ReadFile(outside); string(data) != "untouched" {
		t.Errorf("the link was followed: %q", data)
	}
	// A failure leaves nothing behind.
	if err := WriteAuthority(dir, "missing/Xauthority", nil, owner); err == nil {
		t.Error("wrote below a missing directory")
	}
	names, err := os.ReadDir(dir.Name())
	if err != nil || len(names) != 1 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

func FuzzParseAuthority(f *testing.F) {
	data, _ := EncodeAuthority(CookieEntries(20, "node-1", Cookie{}))
	f.Add(data)
	f.Add([]byte{1, 0, 0xff, 0xff})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := ParseAuthority(data)
		if err != nil {
			return
		}
		again, err := EncodeAuthority(entries)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%x became %x, %v", data, again, err)
		}
	})
}
