// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/namespace"
	"github.com/botscreen/botscreen/shared/screen"
)

// pullThreads bounds the processes of a fetch: it unpacks on all cores.
const pullThreads = 1024

// kept is the file that was made last for a reference of a registry. A link of the
// reference's name leads to it: older ones stay for those who run them, or will not switch.
func (b *Boundary) kept(reference string) (string, error) {
	name, err := os.Readlink(filepath.Join(b.imagesDir(), linkName(reference)))
	if err != nil {
		return "", err
	}
	path := filepath.Join(b.imagesDir(), filepath.Base(name))
	f, err := b.open(path)
	if err != nil {
		return "", err
	}
	return path, f.Close()
}

// fetched is the image that was made for the very same reference meanwhile, else a new one.
func (b *Boundary) fetched(ctx context.Context, wanted isolation.ImageOrder, pulling func()) (isolation.Image, error) {
	turn := b.turn(wanted.Reference)
	turn.Lock() // two starts that want one image fetch it once
	defer turn.Unlock()
	if found, err := b.Find(ctx, wanted.Reference); !errors.Is(err, isolation.ErrNoImage) {
		return found, err
	}
	pulling()
	return b.pulled(ctx, wanted)
}

// pulled fetches an image. One that is there is replaced at the end, in one step; who
// runs it goes on with the old file.
func (b *Boundary) pulled(ctx context.Context, wanted isolation.ImageOrder) (isolation.Image, error) {
	if wanted.Account.UID == 0 {
		return isolation.Image{}, check(isolation.Order{Account: wanted.Account})
	}
	reference := strings.TrimPrefix(wanted.Reference, registryScheme)
	name, err := b.fetch(ctx, reference, wanted)
	if err != nil {
		var refused *RefusedError
		if errors.As(err, &refused) {
			return isolation.Image{}, err
		}
		return isolation.Image{}, &RefusedError{Passes: true, Err: fmt.Errorf("pull image %s: %w", reference, err), Reason: fmt.Sprintf("the image %s could not be pulled (%s). Check its name, the registry and the job's `docker { auth }`; what runs now is not touched", reference, err)}
	}
	return b.described(ctx, filepath.Join(b.imagesDir(), name))
}

// linkName is the name by which a reference's image is found: a reference says nothing
// about paths.
func linkName(reference string) string {
	sum := sha256.Sum256([]byte(strings.TrimPrefix(reference, registryScheme)))
	return hex.EncodeToString(sum[:12])
}

func (b *Boundary) turn(reference string) *sync.Mutex {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pulls[reference] == nil {
		b.pulls[reference] = &sync.Mutex{}
	}
	return b.pulls[reference]
}

// fetch lets apptainer make a file of the image, as the screen's own uid: layers are
// unpacked on the way, and root must not do that (X22). What it made becomes root's by
// a copy; nobody holds that open for writing.
func (b *Boundary) fetch(ctx context.Context, reference string, wanted isolation.ImageOrder) (name string, err error) {
	account := wanted.Account
	program, err := b.program()
	if err != nil {
		return "", err
	}
	images, err := b.openImages()
	if err != nil {
		return "", err
	}
	defer images.Close()
	pull := "pull-" + random()
	if err := images.Mkdir(pull, 0o711); err != nil {
		return "", err
	}
	defer images.RemoveAll(pull)
	if err := images.Mkdir(pull+"/work", 0o700); err != nil {
		return "", err
	}
	if err := images.Mkdir(pull+"/node", 0o700); err != nil {
		return "", err
	}
	if !account.Inherited {
		if err := images.Chown(pull+"/work", int(account.UID), int(account.GID)); err != nil {
			return "", err
		}
	}
	if err := b.runPull(ctx, program, reference, filepath.Join(b.imagesDir(), pull), wanted); err != nil {
		return "", err
	}
	made, err := openMade(images, pull+"/work/image.sif", account)
	if err != nil {
		return "", err
	}
	defer made.Close()
	if info, err := made.Stat(); err != nil {
		return "", err
	} else if wanted.MaxBytes > 0 && uint64(info.Size()) > wanted.MaxBytes {
		return "", &RefusedError{Reason: fmt.Sprintf("the image %s has %d MB, and this node takes at most %d. Use a smaller one, or raise `max_image_mb` in the plugin's config", reference, info.Size()>>20, wanted.MaxBytes>>20)}
	}
	return keep(ctx, images, made, linkName(reference))
}

// openImages makes the folder of fetched images where it is missing. Its parent is
// root's alone.
func (b *Boundary) openImages() (*os.Root, error) {
	state, err := os.OpenRoot(b.options.StateDir)
	if err != nil {
		return nil, err
	}
	defer state.Close()
	if err := state.Mkdir("images", 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return state.OpenRoot("images")
}

func random() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// runPull runs `apptainer pull` in a cgroup of its own; nothing of it is left after.
func (b *Boundary) runPull(ctx context.Context, program, reference, dir string, wanted isolation.ImageOrder) error {
	work, account := filepath.Join(dir, "work"), wanted.Account
	args := []string{"--silent", "pull", "--disable-cache"}
	if b.insecure {
		args = append(args, "--no-https")
	}
	cmd := exec.Command(program, append(args, filepath.Join(work, "image.sif"), registryScheme+reference)...)
	cmd.Env, cmd.Dir = append(engineEnvironment(work), credentials(wanted.Auth)...), work
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !account.Inherited {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: account.UID, Gid: account.GID}
	}
	words, err := newWords(dir)
	if err != nil {
		return err
	}
	defer words.close()
	cmd.Stdout, cmd.Stderr = words.file, words.file
	group, err := isolation.CreateGroup(b.options.Cgroups, "pull-"+filepath.Base(dir), cgroup.Limits{PidsMax: pullThreads})
	if err != nil {
		return err
	}
	err = startIn(cmd, group, nil, func() error {
		if account.Inherited {
			return nil
		}
		if err := namespace.OwnMounts(); err != nil {
			return err
		}
		return namespace.NameAccount(filepath.Join(dir, "node"), account, work)
	})
	if err != nil {
		return errors.Join(err, removeGroup(ctx, group))
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = errors.Join(context.Cause(ctx), killTree(cmd.Process.Pid))
		<-ended
	}
	if removed := removeGroup(ctx, group); removed != nil {
		return removed
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %s", err, words.last())
	}
	return err
}

// credentials tell apptainer who it is to the registry, in the variables that it has for
// that (its manual, "Making use of private images"): a file of them would outlive a
// driver that is killed, and arguments are everybody's to read. The environment of a
// pull is for its own uid and root, and no process of a sandbox sees it.
func credentials(auth screen.RegistryAuth) []string {
	if auth.IsZero() {
		return nil
	}
	name, secret := auth.Reveal()
	return []string{"APPTAINER_DOCKER_USERNAME=" + name, "APPTAINER_DOCKER_PASSWORD=" + secret}
}

func removeGroup(ctx context.Context, group *cgroup.Group) error {
	if group == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
	defer cancel()
	return errors.Join(group.Kill(ctx), group.Remove())
}

// openMade opens what a fetch made: a file of the account's with one name, and nothing
// that a link leads to.
func openMade(images *os.Root, name string, account isolation.Account) (*os.File, error) {
	f, err := images.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || !info.Mode().IsRegular() || stat.Uid != account.UID || stat.Nlink != 1 {
			err = errors.New("apptainer made no image file")
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// keep copies an image to a name of its own and lets the link lead to it, in one step.
func keep(ctx context.Context, images *os.Root, made *os.File, link string) (name string, err error) {
	temporary := ".new-" + random()
	f, err := images.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	defer images.Remove(temporary)
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), &reader{ctx, made})
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return "", err
	}
	name = link + "-" + hex.EncodeToString(sum.Sum(nil)[:8]) + ".sif"
	if err := images.Rename(temporary, name); err != nil {
		return "", err
	}
	if err := images.Symlink(name, temporary); err != nil {
		return "", err
	}
	return name, images.Rename(temporary, link)
}
