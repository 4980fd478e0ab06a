// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxMessage bounds one message in either direction, in bytes (threats.md, X31). An answer
// that is larger reaches its client as an error; a client that sends a larger one is cut.
const MaxMessage = 64 << 20

const (
	// keptBuffer is the size up to which the reader keeps its buffer.
	keptBuffer = 1 << 20
	// headBytes is how much of a message that is too large is still looked at.
	headBytes = 1 << 10
)

var errTooLarge = fmt.Errorf("message larger than %d MiB", MaxMessage>>20)

// frames reads the pipe of --remote-debugging-pipe: each message is JSON and ends with a
// NUL byte, which JSON cannot hold.
type frames struct {
	r   *bufio.Reader
	max int
	buf []byte
}

func newFrames(r io.Reader) *frames {
	return &frames{r: bufio.NewReaderSize(r, 64<<10), max: MaxMessage}
}

// next returns the next message, which is good until the next call. With errTooLarge it
// returns only the beginning, and the one after it can be read.
func (f *frames) next() ([]byte, error) {
	if cap(f.buf) > keptBuffer {
		f.buf = nil
	}
	f.buf = f.buf[:0]
	for {
		part, err := f.r.ReadSlice(0)
		if errors.Is(err, bufio.ErrBufferFull) {
			if len(f.buf)+len(part) > f.max {
				return f.skip(part)
			}
			f.buf = append(f.buf, part...)
			continue
		}
		if err != nil {
			return nil, err
		}
		part = bytes.TrimSuffix(part, []byte{0})
		if len(f.buf)+len(part) > f.max {
			return f.head(part), errTooLarge
		}
		if len(f.buf) == 0 {
			return part, nil
		}
		f.buf = append(f.buf, part...)
		return f.buf, nil
	}
}

// head is the beginning of a message that is too large.
func (f *frames) head(part []byte) []byte {
	whole := append(f.buf[:min(len(f.buf), headBytes)], part...)
	return whole[:min(len(whole), headBytes)]
}

// skip reads on to the end of a message that is too large.
func (f *frames) skip(part []byte) ([]byte, error) {
	head := bytes.Clone(f.head(part))
	f.buf = nil
	for {
		_, err := f.r.ReadSlice(0)
		switch {
		case err == nil:
			return head, errTooLarge
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
