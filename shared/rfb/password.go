// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"crypto/des"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
)

const (
	securityVNC  = 2
	challengeLen = 16
	// PasswordLen is how much of a password the protocol looks at, in bytes.
	PasswordLen = 8
)

// ErrPassword says that a viewer does not know the password.
var ErrPassword = errors.New("wrong password")

// WelcomeWithPassword is Welcome for a viewer that has to know a password of at most
// PasswordLen bytes (RFC 6143 section 7.2.2). DES with eight bytes keeps nobody out who
// can record the handshake: it is for loopback and a password that is used once. The
// viewer has been told of the refusal when the error is ErrPassword. One that knows the
// password is told so after known has returned.
func WelcomeWithPassword(viewer io.ReadWriter, init ServerInit, password string, known func()) (Version, error) {
	return welcome(viewer, init, func(viewer io.ReadWriter, v Version) error {
		return challenge(viewer, v, password, known)
	})
}

func challenge(viewer io.ReadWriter, v Version, password string, known func()) error {
	if err := offerVNC(viewer, v); err != nil {
		return err
	}
	var sent, answer [challengeLen]byte
	_, _ = rand.Read(sent[:]) // never fails, see crypto/rand
	if _, err := viewer.Write(sent[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(viewer, answer[:]); err != nil {
		return err
	}
	want := encryptChallenge(sent, password)
	if subtle.ConstantTimeCompare(want[:], answer[:]) == 1 {
		known()
		_, err := viewer.Write([]byte{0, 0, 0, 0})
		return err
	}
	refusal := []byte{0, 0, 0, 1}
	if v == Version38 {
		reason := "wrong password"
		refusal = append(binary.BigEndian.AppendUint32(refusal, uint32(len(reason))), reason...)
	}
	_, err := viewer.Write(refusal)
	return errors.Join(ErrPassword, err)
}

func offerVNC(viewer io.ReadWriter, v Version) error {
	if v == Version33 {
		_, err := viewer.Write([]byte{0, 0, 0, securityVNC})
		return err
	}
	if _, err := viewer.Write([]byte{1, securityVNC}); err != nil {
		return err
	}
	var chosen [1]byte
	if _, err := io.ReadFull(viewer, chosen[:]); err != nil {
		return err
	}
	if chosen[0] != securityVNC {
		return &HandshakeError{Reason: fmt.Sprintf("viewer chose security type %d, offered %d", chosen[0], securityVNC)}
	}
	return nil
}

// encryptChallenge is DES in ECB mode with the password as the key, its bits in each byte
// the other way round: no standard says so, every implementation does.
func encryptChallenge(challenge [challengeLen]byte, password string) (out [challengeLen]byte) {
	var key [PasswordLen]byte
	copy(key[:], password)
	for i := range key {
		key[i] = bits.Reverse8(key[i])
	}
	block, err := des.NewCipher(key[:])
	if err != nil {
		panic(err) // the length of the key is right
	}
	for i := 0; i < challengeLen; i += block.BlockSize() {
		block.Encrypt(out[i:], challenge[i:])
	}
	return out
}
