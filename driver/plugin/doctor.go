// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/driver/fingerprint"
)

// doctorLimit bounds the whole diagnosis.
const doctorLimit = 30 * time.Second

// Exit codes of doctor.
const (
	doctorHealthy = 0 // some isolation is ready
	doctorSick    = 1 // none is
	doctorMisuse  = 2
)

// Doctor looks at everything a screen needs on this node and says what is missing and
// how to get it here (S14). Raw host screens are examined as if they were allowed.
func Doctor(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("doctor", flag.ContinueOnError)
	flags.SetOutput(stderr)
	asJSON := flags.Bool("json", false, "print the diagnosis as JSON")
	if err := flags.Parse(args); err != nil {
		return doctorMisuse
	}
	config := defaultConfig()
	config.AllowUnsandboxedHost = true
	settings, err := config.settings("", nodeDirs())
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "doctor:", err)
		return doctorMisuse
	}
	ctx, cancel := context.WithTimeout(context.Background(), doctorLimit)
	defer cancel()
	engines, err := newEngines(config, settings, hclog.NewNullLogger())
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "doctor:", err)
		return doctorMisuse
	}
	defer engines.docker.Close()
	diagnosis := newFingerprinter(settings, engines, nil).Diagnose(ctx)
	if *asJSON {
		err = json.NewEncoder(stdout).Encode(diagnosis)
	} else {
		err = printDiagnosis(stdout, diagnosis)
	}
	if err != nil || len(diagnosis.Isolations) == 0 {
		return doctorSick
	}
	return doctorHealthy
}

func printDiagnosis(w io.Writer, d fingerprint.Diagnosis) error {
	for _, c := range d.Checks {
		mark := "ok     "
		if !c.OK {
			mark = "MISSING"
		}
		if _, err := fmt.Fprintf(w, "%s  %-20s %s\n", mark, c.Name, c.Found); err != nil {
			return err
		}
		for _, line := range []string{c.Why, c.Fix} {
			if line != "" && !c.OK {
				if _, err := fmt.Fprintf(w, "         %s\n", line); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
