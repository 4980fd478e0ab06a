// SPDX-License-Identifier: MPL-2.0

package main

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/botscreen/botscreen/shared/lease"
)

// viewerID is this user's id as a viewer, made at the first use. Whoever knows it acts
// as this user (rule L12): it lies in a file of theirs alone and is printed nowhere.
func viewerID() (lease.ViewerID, error) {
	path, err := viewerPath()
	if err == nil {
		var id lease.ViewerID
		if id, err = readViewerID(path); errors.Is(err, fs.ErrNotExist) {
			id, err = makeViewerID(path)
		}
		if err == nil {
			return id, nil
		}
	}
	return "", failf(exitFailed, "Cannot tell who you are: %v.", err)
}

// ownHandle is this user's public name, empty where they have none yet.
func ownHandle() lease.Handle {
	path, err := viewerPath()
	if err != nil {
		return ""
	}
	id, err := readViewerID(path)
	if err != nil {
		return ""
	}
	return id.Handle()
}

func viewerPath() (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) { // as the XDG base directory specification wants it
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "botscreen", "viewer"), nil
}

// readViewerID reads an id that nobody else can have read or written.
func readViewerID(path string) (lease.ViewerID, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 || !ok || int(stat.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s is not a file that you alone can read (it has mode %v); remove it, another one is made", path, info.Mode())
	}
	text := make([]byte, 256)
	n, err := f.Read(text)
	if id := lease.ViewerID(strings.TrimSpace(string(text[:n]))); err == nil && id.Valid() {
		return id, nil
	}
	return "", fmt.Errorf("%s holds no viewer id; remove it, another one is made", path)
}

// makeViewerID makes the file whole or not at all; of two who make it at once both get
// the one that was first.
func makeViewerID(path string) (lease.ViewerID, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:])                                // never fails, see crypto/rand
	tmp, err := os.CreateTemp(filepath.Dir(path), ".viewer-*") // 0600
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(base64.RawURLEncoding.EncodeToString(secret[:]) + "\n")
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", err
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return readViewerID(path)
}
