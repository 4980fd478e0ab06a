// SPDX-License-Identifier: MPL-2.0

// Package isolation is the boundary a session runs behind: what the driver asks of it
// and gets from it, whichever one it is. The implementations are its sub-packages.
package isolation

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/shared/screen"
)

// Account is the numeric identity a session runs as. It is resolved once, by the
// driver; no name from an image is ever used (X29, X30).
type Account struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
	// Name is what the account is called inside, where a name is needed.
	Name string `json:"name"`
	// Inherited says that the driver has no privilege to change identity: the session
	// runs as the driver itself.
	Inherited bool `json:"inherited,omitempty"`
}

// Order is what one session needs from its boundary.
type Order struct {
	ID       screen.ID
	Instance string // random; names this run of the screen in labels and cgroups
	Binary   string // our static binary, root-owned
	Account  Account
	DialDir  string   // holds the supervisor's socket and nothing else
	XDir     string   // the account's, this run's: Xauthority, sockets
	Home     string   // the account's, the profile's
	Hidden   []string // directories of the node the session must not see into (X21)
	Scratch  string   // a root-only directory of this run, for files the boundary needs
	Log      *os.File // the session's stdout: what the desktop says; stays the caller's
	ErrorLog *os.File // the session's stderr; stays the caller's
	Limits   cgroup.Limits
	// JoinCgroups are groups Nomad made for the task, in hierarchies we do not use.
	JoinCgroups []string
	// NetworkNamespace is the path of the alloc's network namespace, empty for the node's.
	NetworkNamespace string

	// Image is what a sandbox runs: a reference, a digest or a file. The host has none.
	Image string
	// ShmBytes and TmpBytes are the sizes of the sandbox's /dev/shm and, where it is a
	// file system of its own, /tmp; 0 is the boundary's default.
	ShmBytes, TmpBytes uint64
	// Writable lets the sandbox change its image for this run, where it could not otherwise.
	Writable bool
	// Volumes are what else of the node is seen inside.
	Volumes []Volume
	// Network is what a container gets that joins no namespace; empty is none.
	Network screen.NetworkMode
	// Labels say to people whose screen it is: job, alloc, task. Nothing relies on them.
	Labels map[string]string
	// OwnLabels are the job's, for people too.
	OwnLabels map[string]string
}

// Sandbox is a session that runs behind a boundary.
type Sandbox interface {
	// Session is the session's process as this node sees it.
	Session() process.Identity
	// Done is closed when the session process has ended.
	Done() <-chan struct{}
	// Status is the session's exit status after Done; ok is false where this process
	// is not the parent and the kernel told somebody else.
	Status() (status Status, ok bool)
	// Kill ends everything behind the boundary and returns when nothing is left.
	Kill(ctx context.Context) error
	// Remove takes away what the boundary made, after Kill.
	Remove(ctx context.Context) error
	// Usage is what the screen uses now.
	Usage(ctx context.Context) (Usage, error)
	// OOMKilled reports whether the kernel killed something of it for memory.
	OOMKilled() bool
	// Record is what Adopt needs to find it again.
	Record() Record
}

// Status is how a session process ended.
type Status struct {
	Code   int
	Signal int
}

// Usage is a sample of a screen's use of the node.
type Usage struct {
	cgroup.Stats
	PIDs []int
}

// Record names a sandbox durably. It is written before anything is launched where the
// fields are known by then, and lies in a file only root can write.
type Record struct {
	Isolation screen.Isolation `json:"isolation"`
	Instance  string           `json:"instance"`
	Session   process.Identity `json:"session"`
	Cgroup    string           `json:"cgroup,omitempty"`
	// Container is the engine's id of it; in an intent, the name it is going to have.
	Container string `json:"container,omitempty"`
	Scratch   string `json:"scratch"`
	// Piped says that the session is on another kernel, behind a pipe, and that Session is
	// the process here that stands for it.
	Piped bool `json:"piped,omitempty"`
}

// Checker is a boundary that may be unusable on this node, or for now.
type Checker interface {
	// Refusal says why no screen can be launched now and what would change that; empty
	// when one can.
	Refusal(ctx context.Context) string
}

// Image is a sandbox image as it lies on this node.
type Image struct {
	Reference string // exactly this image, for Order.Image
	Digest    string // what it was pulled by, for people and records
}

// ImageOrder is the image a screen wants.
type ImageOrder struct {
	Reference string
	// Account is the screen's: what has to be run to fetch an image runs as it (X22).
	Account Account
	// MaxBytes bounds what is fetched; 0 is no limit.
	MaxBytes uint64
	// Auth is for the registry; it is written nowhere.
	Auth screen.RegistryAuth
}

// Imager is a boundary that runs images.
type Imager interface {
	// Resolve finds the image on this node or fetches it; pulling is called once before
	// it fetches. It ends with ctx.
	Resolve(ctx context.Context, wanted ImageOrder, pulling func()) (Image, error)
	// Find finds the image on this node and fetches nothing; what is not there is
	// ErrNoImage.
	Find(ctx context.Context, reference string) (Image, error)
	// Fetch brings what the reference means now: from its registry, where it has one. On
	// an error what was there stays.
	Fetch(ctx context.Context, wanted ImageOrder) (Image, error)
	// Latest is the digest that the reference means now, without fetching it; empty where
	// that cannot be asked.
	Latest(ctx context.Context, wanted ImageOrder) (digest string, err error)
}

// ErrNoImage says that an image is not on this node.
var ErrNoImage = errors.New("the image is not on this node")

// LogFollower is a sandbox whose output comes by way of an engine. Launch has its logs
// from the order; whoever adopts such a sandbox gives them anew, or nobody hears it.
type LogFollower interface {
	// FollowLogs passes on what the session says from since on. The files stay the caller's.
	FollowLogs(stdout, stderr *os.File, since time.Time) error
}

// Explainer is a sandbox that knows why it ended, where that was not the session's doing.
type Explainer interface {
	// EndReason is a sentence for a person after Done, or empty.
	EndReason() string
}

// Halter is a sandbox that somebody outside can halt.
type Halter interface {
	// Halted is a sentence for a person while the sandbox is halted or its engine brings it
	// up or down; empty when it is not, or nobody can say.
	Halted(ctx context.Context) string
}

// Warner is a sandbox that people had better know something about.
type Warner interface {
	// Warnings are for the screen's status; none changes while it runs.
	Warnings() []string
}

// Sweeper is a boundary whose sandboxes can be left behind where no record tells of them.
type Sweeper interface {
	// Sweep removes this driver's sandboxes of instances that keep does not want and that
	// are older than grace, and names what it removed. It ends with ctx.
	Sweep(ctx context.Context, keep func(instance string) bool, grace time.Duration) ([]string, error)
}

// ScreenSweeper is a boundary that can tell what earlier runs of one screen left behind it,
// without their records.
type ScreenSweeper interface {
	// SweepScreen removes it. Nothing of the screen may run.
	SweepScreen(ctx context.Context, id screen.ID) error
}

// ImageSweeper is a boundary that keeps files of its own of the images it fetched.
type ImageSweeper interface {
	// SweepImages removes those that keep does not want by their Image.Reference, that no
	// image reference means on this node any more, and that are older than grace. It
	// returns their names. It ends with ctx.
	SweepImages(ctx context.Context, keep func(reference string) bool, grace time.Duration) ([]string, error)
}

// HomeKeeper is a boundary that can have homes which are not on this node.
type HomeKeeper interface {
	// Homes names those of a profile.
	Homes(ctx context.Context, id screen.ID) ([]string, error)
	// RemoveHomes removes them; what is not there is no error.
	RemoveHomes(ctx context.Context, id screen.ID) error
}

// Boundary launches and finds sandboxes of one kind.
type Boundary interface {
	Kind() screen.Isolation
	// Intent is the record of what Launch is going to make, as far as it is known before:
	// enough for Adopt to find and end what a launch left that died half-way.
	Intent(order Order) Record
	// Launch starts a session that will dial home. On an error nothing is left.
	Launch(ctx context.Context, order Order) (Sandbox, error)
	// Adopt takes over a sandbox another driver process launched. A session that has
	// ended is adopted as well, so that what is left can be killed and removed.
	Adopt(ctx context.Context, record Record) (Sandbox, error)
}
