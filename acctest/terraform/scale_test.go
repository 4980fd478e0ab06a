// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestScale measures many resources beside as many of terraform_data, which is the floor
// of the CLI itself: BOTSCREEN_SCALE is the number of profiles, a tenth as many stopped
// screens come with them.
func TestScale(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("BOTSCREEN_SCALE"))
	if n == 0 {
		t.Skip("set BOTSCREEN_SCALE=1000 (`make scale-terraform`)")
	}
	a := startEmbedded(t, "28000-28099")
	for _, c := range findCLIs() {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c, a)
			for name, text := range map[string]string{
				"terraform_data": fmt.Sprintf("resource \"terraform_data\" \"x\" {\n  count = %d\n  input = count.index\n}\n", n+n/10),
				"botscreen": fmt.Sprintf(`
resource "botscreen_profile" "p" {
  count = %d
  name  = "p${count.index}-PREFIX"
}
resource "botscreen_screen" "s" {
  count         = %d
  name          = "s${count.index}-PREFIX"
  profile       = botscreen_profile.p[count.index].ref
  desired_state = "stopped"
}
`, n, n/10),
			} {
				b.config(text)
				b.scale(name, n+n/10)
			}
		})
	}
}

// scale runs the life of a configuration and prints what each step takes.
func (b *bench) scale(what string, resources int) {
	b.Helper()
	for _, step := range [][]string{
		{"apply", "-no-color", "-auto-approve"}, {"plan", "-no-color", "-detailed-exitcode"}, {"destroy", "-no-color", "-auto-approve"},
	} {
		b.proxy.counts()
		took, peak := b.timed(step...)
		requests := 0
		counts := b.proxy.counts()
		for _, k := range counts {
			requests += k
		}
		b.Logf("%-10s %-14s %-7s %5d resources  %8.1f s  %6.2f ms each  %4d MiB peak  %5.2f requests each", b.cli.name, what, step[0], resources,
			took.Seconds(), float64(took.Microseconds())/1000/float64(resources), peak>>10, float64(requests)/float64(resources))
		// The listing that tells who uses a record happens once, not once for each.
		if lists := counts["GET /v1/jobs"]; lists > 2 {
			b.Errorf("%s: the jobs were listed %d times", step[0], lists)
		}
	}
}

// timed runs a command and gives its time and the largest memory of it and its children,
// in KiB.
func (b *bench) timed(args ...string) (time.Duration, int64) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), b.cli.path, args...)
	cmd.Dir = b.dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "TF_CLI_CONFIG_FILE=" + filepath.Join(b.dir, "cli.rc"), "TF_IN_AUTOMATION=1",
		"CHECKPOINT_DISABLE=1", "NOMAD_ADDR=" + b.proxy.URL, "NOMAD_TOKEN=" + b.token,
	}, b.env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	if err := cmd.Run(); err != nil {
		b.Fatalf("%v: %v\n%.4000s", args, err, out.String())
	}
	usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return time.Since(start), usage.Maxrss
}
