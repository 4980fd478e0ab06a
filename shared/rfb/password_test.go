// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// RFB-26: no more of a password counts, so none that is longer is ever given out.
func TestChallengeLooksAtEightBytes(t *testing.T) {
	got := encryptChallenge([challengeLen]byte{}, "password")
	if got != encryptChallenge([challengeLen]byte{}, "password and more") {
		t.Error("more than eight bytes of the password count")
	}
	if got == encryptChallenge([challengeLen]byte{}, "passwore") {
		t.Error("another password has the same answer")
	}
}

// X27: viewers of each version are let in with the password and not without, and hear so.
func TestX27Password(t *testing.T) {
	for _, version := range []Version{Version33, Version37, Version38} {
		for name, knows := range map[string]string{"right": "secret99", "wrong": "secret98", "none": ""} {
			near, far := net.Pipe()
			result := make(chan error, 1)
			go func() {
				_, err := WelcomeWithPassword(far, testInit, "secret99", func() {})
				result <- err
				far.Close()
			}()
			rest, err := answerAs(near, version, knows, 1<<10)
			near.Close()
			err = errors.Join(err, <-result)
			switch {
			case name == "right" && (err != nil || rest != string(testInit.Append(nil))):
				t.Errorf("%v %s: %q, %v", version, name, rest, err)
			case name != "right" && (!errors.Is(err, ErrPassword) || strings.HasSuffix(rest, "wrong password") != (version == Version38)):
				t.Errorf("%v %s: %q, %v", version, name, rest, err)
			}
		}
	}
}

// answerAs plays a viewer and gives what came after the result, at most so many bytes.
func answerAs(conn net.Conn, v Version, password string, most int64) (string, error) {
	line := make([]byte, versionLen)
	if _, err := io.ReadFull(conn, line); err != nil {
		return "", err
	}
	conn.Write(v.line())
	if v == Version33 {
		io.ReadFull(conn, make([]byte, 4))
	} else {
		io.ReadFull(conn, make([]byte, 2))
		conn.Write([]byte{securityVNC})
	}
	var challenge [challengeLen]byte
	if _, err := io.ReadFull(conn, challenge[:]); err != nil {
		return "", err
	}
	answer := encryptChallenge(challenge, password)
	conn.Write(answer[:])
	result, err := readUint32(conn)
	if err != nil {
		return "", err
	}
	if result == 0 {
		conn.Write([]byte{1})
	}
	rest, _ := io.ReadAll(io.LimitReader(conn, most))
	return string(rest), nil
}

// X27: our computation is the one that VNC programs use: TigerVNC's server accepts it.
func TestX27PasswordOfXvnc(t *testing.T) {
	program, err := exec.LookPath("vncpasswd")
	if err != nil {
		t.Skip("vncpasswd is not installed")
	}
	obfuscate := exec.Command(program, "-f")
	obfuscate.Stdin = strings.NewReader("secret99\n")
	file, err := obfuscate.Output()
	if err != nil {
		t.Fatal(err)
	}
	passwords := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(passwords, file, 0o600); err != nil {
		t.Fatal(err)
	}
	server := startXvnc(t, Size{640, 480}, "-SecurityTypes", "VncAuth", "-PasswordFile", passwords)
	for knows, accepted := range map[string]bool{"secret99": true, "secret98": false} {
		conn, err := net.Dial("unix", server.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		rest, err := answerAs(conn, Version38, knows, 24)
		if err != nil || (len(rest) == 24 && rest[:4] == "\x02\x80\x01\xe0") != accepted {
			t.Errorf("%s: Xvnc answers %q, %v", knows, rest, err)
		}
	}
}
