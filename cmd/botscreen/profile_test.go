// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An encrypted export holds nothing that can be read, and opens with its key and no other.
func TestExportsAreSealed(t *testing.T) {
	dir := t.TempDir()
	var recipient string
	for _, name := range []string{"other", "key"} {
		var out, errs bytes.Buffer
		path := filepath.Join(dir, name)
		if code := run(t.Context(), []string{"profile", "key", path}, streams{out: &out, errs: &errs}); code != 0 {
			t.Fatalf("code %d: %s", code, &errs)
		}
		recipient = strings.TrimSpace(out.String())
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key: %v, %v", info, err)
		}
		if code := run(t.Context(), []string{"profile", "key", path}, streams{out: &out, errs: &errs}); code == 0 {
			t.Error("a key was overwritten")
		}
	}
	recipients, err := recipientsOf([]string{recipient})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "export")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := seal(file, recipients)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "CANARY"); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || bytes.Contains(text, []byte("CANARY")) {
		t.Errorf("the file can be read: %v", err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if r, err := unseal(file, filepath.Join(dir, "key")); err != nil {
		t.Error(err)
	} else if text, err := io.ReadAll(r); err != nil || string(text) != "CANARY" {
		t.Errorf("opened it holds %q, %v", text, err)
	}
	for identity, want := range map[string]string{
		"": "--identity", filepath.Join(dir, "other"): "cannot be opened", path: "holds no key", filepath.Join(dir, "none"): "Cannot read the key",
	} {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if _, err := unseal(file, identity); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %q: %v, want %q", identity, err, want)
		}
	}
	if _, err := recipientsOf([]string{"AGE-SECRET"}); err == nil {
		t.Error("a recipient that is none was accepted")
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("CANARY"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(plain)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if r, err := unseal(f, ""); err != nil {
		t.Error(err)
	} else if text, _ := io.ReadAll(r); string(text) != "CANARY" {
		t.Errorf("the plain one holds %q", text)
	}
}
