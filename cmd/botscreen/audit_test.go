// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/audit"
	"github.com/botscreen/botscreen/shared/screen"
)

// X39: the command shows what holds, and names the line from which it does not.
func TestX39AuditOfADirectory(t *testing.T) {
	path := t.TempDir()
	dir, err := os.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	log := audit.NewLog(dir)
	for _, act := range []audit.Act{audit.Taken, audit.HandedBack, audit.Taken} {
		if err := log.Append(audit.Entry{Act: act, Peer: audit.Peer{Door: audit.Exec}, Viewer: "0123456789ab", Before: 1, After: 2, Reason: screen.Distrust("a captcha")}); err != nil {
			t.Fatal(err)
		}
	}
	r := call(t, "audit", "-dir", path)
	r.want(t, exitOK, "handed_back", "")
	if !strings.Contains(r.out, "0123456789ab  exec  1→2") {
		t.Errorf("printed %s", r.out)
	}
	file := filepath.Join(path, audit.Name)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "handed_back", "taken", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	call(t, "audit", "-dir", path).want(t, exitFailed, "taken", "line 3: the line before it is not the one it was written after")
	var answer auditAnswer
	r = call(t, "audit", "-dir", path, "-json")
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil || r.code != exitFailed {
		t.Fatal(r.code, err, r.out)
	}
	if answer.Intact || len(answer.Entries) != 2 || answer.Broken == "" {
		t.Errorf("%+v", answer)
	}
	call(t, "audit", "-dir", t.TempDir()).want(t, exitFailed, "", "no audit.jsonl")
	call(t, "audit").want(t, exitUsage, "", "name a screen, or a control directory")
	call(t, "audit", "a", "-dir", path).want(t, exitUsage, "", "name a screen, or a control directory")
}
