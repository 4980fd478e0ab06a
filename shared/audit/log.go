// SPDX-License-Identifier: MPL-2.0

package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Name is the file in a screen's control directory; an older one is kept beside it.
const (
	Name  = "audit.jsonl"
	Older = Name + ".1"

	fileMode = 0o600
	lockName = Name + ".lock"
	// maxFile is where the file is put aside, in bytes.
	maxFile = 4 << 20
	// reserve is the room kept on the disk ahead of the file's end, in bytes: a takeover
	// is written down also when a download has filled the disk (X36).
	reserve = 64 << 10
)

// Log appends to the audit file of a control directory. Several processes may: a
// supervisor that ends and the next one.
type Log struct {
	dir  *os.Root
	most int64

	mu   sync.Mutex // guards all below; held across a write, which is what orders the lines
	head Head
	lost uint64
}

// NewLog keeps its file in dir, which only the supervisor's uid can enter.
func NewLog(dir *os.Root) *Log { return &Log{dir: dir, most: maxFile} }

// Append adds a line: it fills in the number, the time and the hash. What cannot be
// written is counted, and the next line that can be says so.
func (l *Log) Append(e Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.Time, e.Lost = time.Now().UTC(), l.lost
	if err := l.append(e); err != nil {
		l.lost++
		return fmt.Errorf("append to %s: %w", Name, err)
	}
	l.lost = 0
	return nil
}

// Head is the newest line that this process has written or found.
func (l *Log) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

func (l *Log) append(e Entry) error {
	unlock, err := l.lock(unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	f, err := l.dir.OpenFile(Name, os.O_CREATE|os.O_RDWR|os.O_APPEND, fileMode)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	size, head, err := l.tail(f)
	if err != nil {
		return err
	}
	e.Seq, e.Previous = head.Seq+1, head.Hash
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if size+int64(len(line)) > l.most {
		if f, err = l.turn(f); err != nil {
			return err
		}
		size = 0
	}
	// Best effort: not every file system can, and then the write says what is wrong.
	_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, size, int64(len(line))+reserve)
	if _, err := f.Write(append(line, '\n')); err != nil {
		return errors.Join(err, f.Truncate(size)) // half a line is none
	}
	l.head = Head{Seq: e.Seq, Hash: hashOf(line)}
	return f.Sync()
}

// lock excludes other processes.
func (l *Log) lock(how int) (func(), error) {
	f, err := l.dir.OpenFile(lockName, os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch err {
		case nil:
			return func() { _ = f.Close() }, nil
		case unix.EINTR:
		default:
			_ = f.Close()
			return nil, fmt.Errorf("flock %s: %w", lockName, err)
		}
	}
}

// turn puts the full file aside and begins another one, which goes on with the chain.
func (l *Log) turn(full *os.File) (*os.File, error) {
	if err := full.Close(); err != nil {
		return full, err
	}
	if err := l.dir.Rename(Name, Older); err != nil {
		return full, err
	}
	f, err := l.dir.OpenFile(Name, os.O_CREATE|os.O_RDWR|os.O_APPEND, fileMode)
	if err != nil {
		return full, err
	}
	return f, nil
}

// tail finds the end of the file and its last line. What a crash has left of a line is
// cut off: it was never written.
func (l *Log) tail(f *os.File) (size int64, head Head, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, Head{}, err
	}
	size = info.Size()
	if size == 0 {
		return 0, l.headOfOlder(), nil
	}
	end := make([]byte, min(size, 2*maxLine))
	if _, err := f.ReadAt(end, size-int64(len(end))); err != nil {
		return 0, Head{}, err
	}
	whole := bytes.LastIndexByte(end, '\n') + 1
	if torn := int64(len(end) - whole); torn > 0 {
		size -= torn
		if err := f.Truncate(size); err != nil {
			return 0, Head{}, err
		}
	}
	if whole == 0 {
		return size, l.headOfOlder(), nil
	}
	return size, l.headOf(end[:whole-1]), nil
}

// headOf is the last line of text. One that is broken still has a hash; its number is
// then what is remembered of it, and Verify finds it.
func (l *Log) headOf(text []byte) Head {
	line := text[bytes.LastIndexByte(text, '\n')+1:]
	head := Head{Seq: l.head.Seq, Hash: hashOf(line)}
	if e, err := parse(line); err == nil {
		head.Seq = e.Seq
	}
	return head
}

// headOfOlder is where the chain of an empty file begins.
func (l *Log) headOfOlder() Head {
	f, err := l.dir.Open(Older)
	if err != nil {
		return l.head
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 2*maxFile))
	if err != nil || len(text) == 0 {
		return l.head
	}
	return l.headOf(bytes.TrimSuffix(text, []byte("\n")))
}

// Read returns everything that is kept, the oldest line first.
func (l *Log) Read() ([]byte, error) {
	unlock, err := l.lock(unix.LOCK_SH)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", Name, err)
	}
	defer unlock()
	return ReadDir(l.dir)
}

// ReadDir returns what a control directory holds, the oldest line first, and changes
// nothing in it.
func ReadDir(dir *os.Root) ([]byte, error) {
	var all []byte
	for _, name := range []string{Older, Name} {
		f, err := dir.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		text, err := io.ReadAll(io.LimitReader(f, 2*maxFile))
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		all = append(all, text...)
	}
	return all, nil
}
