// SPDX-License-Identifier: MPL-2.0

package display

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/botscreen/botscreen/driver/slot"
)

// TestMain lets the test binary play another starter: it claims as many numbers as it is told, prints them, and
// keeps them until its standard input closes.
func TestMain(m *testing.M) {
	if node := os.Getenv("DISPLAY_CLAIM_NODE"); node != "" {
		os.Exit(claimer(node))
	}
	os.Exit(m.Run())
}

func claimer(node string) int {
	dir, err := slot.Open(node)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	band, _ := ParseBand(os.Getenv("DISPLAY_CLAIM_BAND"))
	c := &Claims{Host: Host{ProcFS: os.Getenv("DISPLAY_CLAIM_PROC"), TmpDir: os.Getenv("DISPLAY_CLAIM_TMP")}, Node: dir, Band: band}
	count, _ := strconv.Atoi(os.Getenv("DISPLAY_CLAIM_COUNT"))
	for range count {
		claim, err := c.Claim(context.Background(), None)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(int(claim.Number()))
	}
	fmt.Println("done")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func newClaims(t *testing.T, h Host, band Band) *Claims {
	t.Helper()
	parent, err := os.MkdirTemp(t.TempDir(), "run")
	if err != nil {
		t.Fatal(err)
	}
	node, err := slot.Open(filepath.Join(parent, "node"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	return &Claims{Host: h, Node: node, Band: band}
}

func mustClaim(t *testing.T, c *Claims, preferred Number, not ...Number) *Claim {
	t.Helper()
	claim, err := c.Claim(context.Background(), preferred, not...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(claim.Release)
	return claim
}

func TestD4PreferredOnlyIfFreeNow(t *testing.T) {
	h := fakeHost(t, map[int]string{200: "Xvnc :45"})
	c := newClaims(t, h, Band{40, 49})
	if got := mustClaim(t, c, 44).Number(); got != 44 {
		t.Errorf("free preferred number: got %s, want :44", got)
	}
	writeFile(t, Number(45).LockPath(h.TmpDir), "       200\n")
	if got := mustClaim(t, c, 45).Number(); got != 40 {
		t.Errorf("preferred number in use: got %s, want :40", got)
	}
	if got := mustClaim(t, c, 44).Number(); got != 41 {
		t.Errorf("preferred number claimed by another start: got %s, want :41", got)
	}
	if got := mustClaim(t, c, 70).Number(); got != 42 {
		t.Errorf("preferred number outside of the band: got %s, want :42", got)
	}
	if got := mustClaim(t, c, 46, 46, 43).Number(); got != 47 {
		t.Errorf("preferred and lowest number excluded: got %s, want :47", got)
	}
}

func TestDSP01CleanedTmpIsNotFree(t *testing.T) {
	h := fakeHost(t, nil)
	setNetUnix(t, h, "@/tmp/.X11-unix/X40")
	if got := mustClaim(t, newClaims(t, h, Band{40, 49}), 40).Number(); got != 41 {
		t.Errorf("got %s, want :41: a server answers on the abstract name of :40", got)
	}
}

func TestDSP04StaleFilesAreRemovedAndOthersSkipped(t *testing.T) {
	h := fakeHost(t, map[int]string{1: "init"})
	writeFile(t, Number(40).LockPath(h.TmpDir), "         1\n")
	writeFile(t, Number(41).LockPath(h.TmpDir), "    999999\n")
	c := newClaims(t, h, Band{40, 49})
	claim := mustClaim(t, c, None)
	if claim.Number() != 41 {
		t.Fatalf("got %s, want :41", claim.Number())
	}
	if want := []string{Number(41).LockPath(h.TmpDir)}; !slices.Equal(claim.Cleared(), want) {
		t.Errorf("Cleared = %v, want %v", claim.Cleared(), want)
	}
	if _, err := os.Lstat(Number(41).LockPath(h.TmpDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stale lock: %v, want it gone", err)
	}
	if data, err := os.ReadFile(Number(40).LockPath(h.TmpDir)); err != nil || string(data) != "         1\n" {
		t.Errorf("lock of a living process: %q, %v, want it untouched (D5)", data, err)
	}
	left, err := filepath.Glob(h.TmpDir + "/.botscreen-*")
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestD5RemoveDeadNeverRemovesWhatTookItsPlace(t *testing.T) {
	tmp := t.TempDir()
	path := filepath.Join(tmp, "lock")
	writeFile(t, path, "dead")
	dir, err := openDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	removed, err := removeDead(dir, "lock", func() bool {
		// A server starts between the look and the removal, as servers do: link(2) of a file of its own.
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		writeFile(t, path+".new", "alive")
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		return true
	})
	if removed || err == nil {
		t.Errorf("removeDead = %v, %v, want an error", removed, err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "alive" {
		t.Errorf("the new lock: %q, %v, want it in place", data, err)
	}
	if removed, err := removeDead(dir, "lock", func() bool { return false }); removed || err == nil {
		t.Errorf("not dead: %v, %v", removed, err)
	}
	if removed, err := removeDead(dir, "missing", func() bool { return true }); removed || err != nil {
		t.Errorf("missing: %v, %v", removed, err)
	}
}

func TestD8Exhausted(t *testing.T) {
	h := fakeHost(t, map[int]string{1: "init"})
	setNetUnix(t, h, "@/tmp/.X11-unix/X40", "@/tmp/.X11-unix/X41")
	_, err := newClaims(t, h, Band{40, 41}).Claim(context.Background(), None)
	var full *ExhaustedError
	if !errors.As(err, &full) {
		t.Fatalf("got %v", err)
	}
	if want := "reserve display: all 2 numbers from :40 to :41 in use"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	for _, word := range []string{":40 to :41", "`displays`"} {
		if !strings.Contains(full.Sentence(), word) {
			t.Errorf("sentence %q lacks %q", full.Sentence(), word)
		}
	}
	writeFile(t, Number(42).LockPath(h.TmpDir), "         1\n")
	c := newClaims(t, h, Band{40, 44})
	mustClaim(t, c, 43)
	_, err = c.Claim(context.Background(), None, 44)
	if !errors.As(err, &full) || *full != (ExhaustedError{Band: c.Band, InUse: 2, Starting: 1, Blocked: 1, Excluded: 1}) {
		t.Errorf("got %+v", full)
	}
	if free, err := c.Free(); err != nil || free != 2 {
		t.Errorf("Free = %d, %v, want 2", free, err)
	}
}

// Seventy starts at the same moment from seven processes: seventy numbers, and none is lost when a starter is
// killed while it holds some (D6, DSP-12).
func TestD6SeventyAtOnceFromSevenProcesses(t *testing.T) {
	h := fakeHost(t, nil)
	c := newClaims(t, h, DefaultBand)
	if DefaultBand.Len() != 70 {
		t.Fatalf("the band has %d numbers", DefaultBand.Len())
	}
	starters := make([]*exec.Cmd, 7)
	lines := make(chan string)
	var wg sync.WaitGroup
	for i := range starters {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "DISPLAY_CLAIM_NODE="+c.Node.Path(), "DISPLAY_CLAIM_COUNT=10",
			"DISPLAY_CLAIM_BAND="+c.Band.String(), "DISPLAY_CLAIM_PROC="+h.ProcFS, "DISPLAY_CLAIM_TMP="+h.TmpDir)
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		starters[i] = cmd
		wg.Go(func() {
			for s := bufio.NewScanner(out); s.Scan() && s.Text() != "done"; {
				lines <- s.Text()
			}
		})
	}
	t.Cleanup(func() {
		for _, cmd := range starters {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	go func() { wg.Wait(); close(lines) }()
	seen := map[string]bool{}
	for line := range lines {
		if _, err := strconv.Atoi(line); err != nil {
			t.Errorf("a starter says: %s", line)
		}
		if seen[line] {
			t.Errorf("number %s given twice", line)
		}
		seen[line] = true
	}
	if len(seen) != 70 {
		t.Fatalf("%d numbers given, want 70", len(seen))
	}
	if _, err := c.Claim(context.Background(), None); err == nil {
		t.Error("a 71st number was given")
	}
	for _, cmd := range starters {
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	for range 70 {
		mustClaim(t, c, None)
	}
}

// A start that hangs keeps its own number only (D3).
func TestD3HungStartBlocksNobody(t *testing.T) {
	c := newClaims(t, fakeHost(t, nil), Band{40, 49})
	mustClaim(t, c, None) // and never goes on
	if got := mustClaim(t, c, None).Number(); got != 41 {
		t.Errorf("got %s, want :41", got)
	}
}

func TestClaimEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("stopped")
	cancel(cause)
	if _, err := newClaims(t, fakeHost(t, nil), Band{40, 49}).Claim(ctx, None); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
}
