// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"bytes"
	"crypto/des"
	"fmt"
	"io"
	"math/bits"
	"net"
	"os"
	"testing"
)

// viewedOnAPort sees a desktop through a loopback port, which is one program's that knows
// the password (X27).
func viewedOnAPort(t *testing.T, a *agent) {
	a.must(t, "run", a.job(t, "ported"))
	defer a.botscreen(t, "stop", "--force", "ported")
	var said struct {
		Host, Password, Mode string
		Port                 int
	}
	cmd, stderr := a.begin(t, &said, "view", "--port", "0", "--json", "ported")
	if said.Host != "127.0.0.1" || len(said.Password) != 8 || said.Mode != "control" {
		t.Fatalf("view is on %q, its password has %d bytes, its mode is %q\n%s", said.Host, len(said.Password), said.Mode, stderr)
	}
	words, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
	if err != nil || bytes.Contains(words, []byte(said.Password)) {
		t.Errorf("the password is among the arguments, %v", err)
	}
	address := net.JoinHostPort(said.Host, fmt.Sprint(said.Port))
	if _, ok := answerChallenge(t, address, "password"); ok {
		t.Error("a wrong password is good")
	}
	conn, ok := answerChallenge(t, address, said.Password)
	if !ok {
		t.Fatal("the password is not good")
	}
	if _, err := conn.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	size := make([]byte, 4)
	if _, err := io.ReadFull(conn, size); err != nil || string(size) != "\x03\x20\x02\x58" { // 800 by 600
		t.Errorf("the screen begins with %x, %v", size, err)
	}
	if second, err := net.Dial("tcp", address); err == nil {
		t.Error("a second program connects")
		_ = second.Close()
	}
	_ = conn.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the command ended with %v\n%s", err, stderr)
	}
	a.must(t, "stop", "ported")
	gone(t, a)
}

// answerChallenge plays a VNC program until it knows whether the password is good (RFC
// 6143 section 7.2.2).
func answerChallenge(t *testing.T, address, password string) (conn net.Conn, ok bool) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	read := func(n int) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(conn, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	write := func(b []byte) {
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	write(read(len("RFB 003.008\n")))
	read(2) // one type, which is VncAuth
	write([]byte{2})
	challenge := read(16)
	key := []byte(password)
	for i := range key {
		key[i] = bits.Reverse8(key[i])
	}
	block, err := des.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	block.Encrypt(challenge[:8], challenge[:8])
	block.Encrypt(challenge[8:], challenge[8:])
	write(challenge)
	return conn, read(4)[3] == 0
}
