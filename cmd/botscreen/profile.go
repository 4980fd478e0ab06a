// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/control"
)

// archiveLimit bounds an export or import, a wake of the screen included.
const archiveLimit = wakeLimit + 30*time.Minute

func (c *cli) profileCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "Move the logins of a bot, the profile of its browser, or remove all that it has",
		Long: `Take the profile of a screen's browser away in a file, and put one into a screen. It holds every login, so give a
recipient: then nobody but the owner of its key can read the file, which is of the age format (https://age-encryption.org). Both are
refused while the browser runs. A profile that a newer browser has used is refused.`,
	}
	cmd.AddCommand(c.profileExportCommand(), c.profileImportCommand(), c.profileKeyCommand(), c.profileRemoveCommand())
	return cmd
}

func (c *cli) profileExportCommand() *cobra.Command {
	var out string
	var recipients []string
	cmd := &cobra.Command{
		Use: "export SCREEN -o FILE", Short: "Write the browser profile of a screen to a file", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.profileExport(cmd.Context(), args[0], out, recipients)
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "`FILE` to write, readable for you alone (required)")
	cmd.Flags().StringArrayVar(&recipients, "recipient", nil, "encrypt for the owner of `KEY` (age1…); may be repeated")
	return cmd
}

func (c *cli) profileImportCommand() *cobra.Command {
	var identity string
	cmd := &cobra.Command{
		Use: "import SCREEN FILE", Short: "Put an exported profile in the place of a screen's own",
		Long: `Put an exported profile in the place of a screen's own. That one is kept in its home, in browser.before-import, until the
next import.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.profileImport(cmd.Context(), args[0], args[1], identity)
		},
	}
	cmd.Flags().StringVar(&identity, "identity", "", "`FILE` with the key of an encrypted export (AGE-SECRET-KEY-…)")
	return cmd
}

func (c *cli) profileKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "key FILE", Short: "Make a key for encrypted exports: FILE is for --identity, what is printed for --recipient",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			key, err := age.GenerateX25519Identity()
			if err == nil {
				err = writeNew(args[0], key.String()+"\n")
			}
			if err != nil {
				return failf(exitFailed, "Cannot make a key: %v.", err)
			}
			_, err = fmt.Fprintln(c.out, key.Recipient())
			return err
		},
	}
}

// writeNew makes a file that its owner alone can read; there must be none of that name.
func writeNew(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	return errors.Join(err, f.Close())
}

func (c *cli) profileExport(ctx context.Context, name, out string, keys []string) error {
	if out == "" {
		return &usageError{errors.New("give the file to write with -o FILE")}
	}
	recipients, err := recipientsOf(keys)
	if err != nil {
		return err
	}
	// Beside the file, so that it gets its name in one step and only when it is whole.
	file, err := os.CreateTemp(filepath.Dir(out), ".botscreen-export-")
	if err != nil {
		return failf(exitFailed, "Cannot write the export: %v.", err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	sealed, err := seal(file, recipients)
	if err != nil {
		return failf(exitFailed, "Cannot write the export: %v.", err)
	}
	_, err = c.withScreen(ctx, name, archiveLimit, func(ctx context.Context, conn *control.Client) error {
		return archive(ctx, conn, control.CommandExportProfile, strings.NewReader(""), sealed)
	})
	if err != nil {
		return err
	}
	if err := errors.Join(sealed.Close(), file.Close(), os.Rename(file.Name(), out)); err != nil {
		return failf(exitFailed, "Cannot write the export: %v.", err)
	}
	if len(recipients) == 0 {
		c.say("Whoever reads %s has the bot's logins. Encrypt it with --recipient; `botscreen profile key FILE` makes a key.", line(out))
	}
	return c.archived(out, "Wrote %s.\n")
}

// archived says that it is done.
func (c *cli) archived(what, format string) error {
	if c.json {
		return c.printJSON(map[string]any{"file": what, "done": true})
	}
	_, err := fmt.Fprintf(c.out, format, line(what))
	return err
}

func recipientsOf(keys []string) ([]age.Recipient, error) {
	var all []age.Recipient
	for _, key := range keys {
		r, err := age.ParseX25519Recipient(key)
		if err != nil {
			return nil, failf(exitUsage, "--recipient %q is no key such as age1… (`botscreen profile key FILE` makes one).", key)
		}
		all = append(all, r)
	}
	return all, nil
}

// seal writes through the encryption for these recipients, or plainly where there are none.
func seal(w io.Writer, recipients []age.Recipient) (io.WriteCloser, error) {
	if len(recipients) == 0 {
		return plainWriter{w}, nil
	}
	return age.Encrypt(w, recipients...)
}

// plainWriter has nothing to finish.
type plainWriter struct{ io.Writer }

func (plainWriter) Close() error { return nil }

func (c *cli) profileImport(ctx context.Context, name, path, identity string) error {
	file, err := os.Open(path)
	if err != nil {
		return failf(exitUsage, "Cannot read the export: %v.", err)
	}
	defer file.Close()
	opened, err := unseal(file, identity)
	if err != nil {
		return err
	}
	s, err := c.withScreen(ctx, name, archiveLimit, func(ctx context.Context, conn *control.Client) error {
		return archive(ctx, conn, control.CommandImportProfile, opened, io.Discard)
	})
	if err != nil {
		return err
	}
	return c.archived(s.Path(), "%s has the profile now.\n")
}

// ageHeader begins every file of the age format, version 1.
const ageHeader = "age-encryption.org/v1"

// unseal reads an export, encrypted or not.
func unseal(file *os.File, identity string) (io.Reader, error) {
	head := make([]byte, len(ageHeader))
	n, err := file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, failf(exitUsage, "Cannot read the export: %v.", err)
	}
	if string(head[:n]) != ageHeader {
		return file, nil
	}
	if identity == "" {
		return nil, failf(exitUsage, "The export is encrypted. Give the file with its key with --identity FILE.")
	}
	key, err := os.Open(identity)
	if err != nil {
		return nil, failf(exitUsage, "Cannot read the key: %v.", err)
	}
	defer key.Close()
	identities, err := age.ParseIdentities(key)
	if err != nil {
		return nil, failf(exitUsage, "%s holds no key such as AGE-SECRET-KEY-1….", identity) // the cause would repeat it
	}
	opened, err := age.Decrypt(file, identities...)
	if err != nil {
		return nil, failf(exitUsage, "The export cannot be opened with this key: %v.", err)
	}
	return opened, nil
}

// maxSaid bounds what is kept of a refusal, in bytes.
const maxSaid = 4 << 10

// archive runs one of the session's own commands.
func archive(ctx context.Context, conn *control.Client, command string, in io.Reader, out io.Writer) error {
	stream, err := conn.Exec(ctx, control.ExecRequest{Argv: []string{command}})
	if err != nil {
		return err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { _ = stream.Close() })()
	sent := make(chan error, 1)
	go func() {
		w := stream.Stdin()
		_, err := io.Copy(w, in)
		if err == nil {
			err = w.Close() // a whole archive only: one that was cut off ends without its end
		} else {
			_ = stream.Close()
		}
		sent <- err
	}()
	said := &limitedText{room: maxSaid}
	result, err := stream.Copy(out, said)
	if err != nil {
		select {
		case broken := <-sent: // what ended it was our own side
			err = errors.Join(broken, err)
		default:
		}
		return err
	}
	if result.ExitCode != 0 || result.Error != "" {
		return &control.Error{Kind: control.Refused, Message: "Cannot move the profile: " + strings.TrimSpace(said.String()+" "+result.Error) + "."}
	}
	return nil
}

// limitedText keeps the beginning of what is written.
type limitedText struct {
	strings.Builder
	room int
}

func (l *limitedText) Write(p []byte) (int, error) {
	take := min(len(p), l.room)
	l.room -= take
	_, _ = l.Builder.Write(p[:take])
	return len(p), nil
}
