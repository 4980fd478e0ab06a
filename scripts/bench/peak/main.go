// SPDX-License-Identifier: MPL-2.0

// Command peak runs the program that PEAK_PROGRAM names in its own place, and adds the
// largest memory that it had, in KiB, as a line to the file PEAK_FILE. A Terraform takes it
// for the provider.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peak:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run() (int, error) {
	cmd := exec.Command(os.Getenv("PEAK_PROGRAM"), os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// A CLI that is interrupted tells its provider itself.
	signal.Ignore(os.Interrupt)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, errors.New("no usage of the program")
	}
	file, err := os.OpenFile(os.Getenv("PEAK_FILE"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fprintln(file, usage.Maxrss)
	return cmd.ProcessState.ExitCode(), errors.Join(err, file.Close())
}
