// SPDX-License-Identifier: MPL-2.0

package state

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// codec turns rows into JSON and back.
type codec[T any] interface {
	encode(key string, row T) (json.RawMessage, error)
	decode(key string, value json.RawMessage) (T, error)
}

type plainCodec[T any] struct{}

func (plainCodec[T]) encode(_ string, row T) (json.RawMessage, error) { return json.Marshal(row) }

func (plainCodec[T]) decode(_ string, value json.RawMessage) (row T, err error) {
	return row, json.Unmarshal(value, &row)
}

// sealedCodec keeps rows encrypted and bound to their key, so that secrets lie in no
// file but under the keyring (0600), and one row's file cannot stand in for another's.
type sealedCodec[T any] struct{ seal cipher.AEAD }

func (c sealedCodec[T]) encode(key string, row T) (json.RawMessage, error) {
	text, err := json.Marshal(row)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, c.seal.NonceSize(), c.seal.NonceSize()+len(text)+c.seal.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return json.Marshal(c.seal.Seal(nonce, nonce, text, []byte(key)))
}

func (c sealedCodec[T]) decode(key string, value json.RawMessage) (row T, err error) {
	var sealed []byte
	if err := json.Unmarshal(value, &sealed); err != nil {
		return row, err
	}
	if len(sealed) < c.seal.NonceSize() {
		return row, errors.New("sealed row: too short")
	}
	text, err := c.seal.Open(nil, sealed[:c.seal.NonceSize()], sealed[c.seal.NonceSize():], []byte(key))
	if err != nil {
		return row, fmt.Errorf("sealed row: %w", err)
	}
	return row, json.Unmarshal(text, &row)
}

// keyBytes is the length of an AES-256 key.
const keyBytes = 32

// openSeal reads the key, and makes one at the first start.
func openSeal(path string) (cipher.AEAD, error) {
	key, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		key = make([]byte, keyBytes)
		if _, err := rand.Read(key); err != nil {
			return nil, err
		}
		err = writeFile(path, key, true)
	}
	if err != nil {
		return nil, fmt.Errorf("keyring: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("keyring %s: %w", path, err)
	}
	return cipher.NewGCM(block)
}
