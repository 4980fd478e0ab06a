// SPDX-License-Identifier: MPL-2.0

// Package node describes this machine as a Nomad node: identity, resources,
// attributes, and what its drivers say of themselves.
package node

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/devagent/drivers"
	"github.com/botscreen/botscreen/shared/devagent/ident"
	"github.com/botscreen/botscreen/shared/devagent/state"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
)

// Config is what a user may say of the node.
type Config struct {
	// Dir keeps the node's id.
	Dir        string
	Name       string
	Datacenter string
	Class      string
	Meta       map[string]string
	// HTTPAddr is where the agent listens.
	HTTPAddr string
	// Version is that of the agent; jobs compare it as nomad.version.
	Version string
	// ReservedMemoryMB is not given to tasks.
	ReservedMemoryMB int
}

// Keeper holds the node and writes its changes into the state.
type Keeper struct {
	store *state.Store

	// mu guards node; the values in it are not changed once they are in the state.
	mu   sync.Mutex
	node *api.Node
	// fingerprinted are the drivers that have spoken.
	fingerprinted map[string]bool
	spoken        chan struct{}
	awaited       map[string]bool
}

// New describes this machine and registers it. awaited are the drivers of which a
// first word is expected, see Ready.
func New(store *state.Store, c Config, awaited []string) (*Keeper, error) {
	n, err := describe(c)
	if err != nil {
		return nil, fmt.Errorf("describe node: %w", err)
	}
	k := &Keeper{store: store, node: n, fingerprinted: map[string]bool{}, spoken: make(chan struct{}), awaited: map[string]bool{}}
	for _, name := range awaited {
		k.awaited[name] = true
	}
	if len(awaited) == 0 {
		close(k.spoken)
	}
	store.Read(func(v *state.View) {
		if old := v.Node(); old != nil {
			n.CreateIndex = old.CreateIndex
			n.SchedulingEligibility = old.SchedulingEligibility
		}
	})
	return k, k.put()
}

// ID is the node's, the same over restarts.
func (k *Keeper) ID() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.node.ID
}

// Ready is closed when every awaited driver has spoken once.
func (k *Keeper) Ready() <-chan struct{} { return k.spoken }

// Drivers takes what a driver says of itself. The same again changes nothing.
func (k *Keeper) Drivers(u drivers.Update) error {
	// Heard is who is in the state: then the node has the driver for everybody.
	defer k.heard(u.Driver)
	k.mu.Lock()
	old := k.node.Drivers[u.Driver]
	if old != nil && same(old, u.Info) {
		k.mu.Unlock()
		return nil
	}
	n := *k.node
	n.Drivers = maps.Clone(n.Drivers)
	n.Drivers[u.Driver] = u.Info
	n.Attributes = maps.Clone(n.Attributes)
	if old != nil {
		for name := range old.Attributes {
			delete(n.Attributes, name)
		}
	}
	maps.Copy(n.Attributes, u.Info.Attributes)
	delete(n.Attributes, "driver."+u.Driver)
	if u.Info.Detected {
		n.Attributes["driver."+u.Driver] = "1"
	}
	if old == nil || old.Healthy != u.Info.Healthy || old.HealthDescription != u.Info.HealthDescription {
		n.Events = append(append([]*api.NodeEvent{}, n.Events...), driverEvent(u))
		n.Events = n.Events[max(0, len(n.Events)-keptEvents):]
	}
	k.node = &n
	k.mu.Unlock()
	return k.put()
}

// keptEvents is how many events of a node are kept.
const keptEvents = 10

func driverEvent(u drivers.Update) *api.NodeEvent {
	return &api.NodeEvent{
		Message: u.Info.HealthDescription, Subsystem: "Driver", Timestamp: u.Info.UpdateTime,
		Details: map[string]string{"driver": u.Driver},
	}
}

func same(a, b *api.DriverInfo) bool {
	return a.Detected == b.Detected && a.Healthy == b.Healthy && a.HealthDescription == b.HealthDescription &&
		maps.Equal(a.Attributes, b.Attributes)
}

// heard notes that a driver has spoken.
func (k *Keeper) heard(driver string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fingerprinted[driver] || !k.awaited[driver] {
		return
	}
	k.fingerprinted[driver] = true
	if len(k.fingerprinted) == len(k.awaited) {
		close(k.spoken)
	}
}

// SetEligibility allows or forbids new allocations.
func (k *Keeper) SetEligibility(eligibility string) (uint64, error) {
	k.mu.Lock()
	n := *k.node
	n.SchedulingEligibility = eligibility
	k.node = &n
	k.mu.Unlock()
	err := k.put()
	var index uint64
	k.store.Read(func(v *state.View) { index = v.TableIndex(state.Nodes) })
	return index, err
}

func (k *Keeper) put() error {
	_, err := k.store.Update(func(tx *state.Tx) error {
		k.mu.Lock()
		n := *k.node
		k.mu.Unlock()
		if old := tx.Node(); old != nil {
			n.CreateIndex = old.CreateIndex
			if old.ID != n.ID {
				tx.DeleteNode(old.ID)
			}
		}
		tx.PutNode(&n)
		return nil
	})
	if err != nil {
		return fmt.Errorf("register node: %w", err)
	}
	return nil
}

func describe(c Config) (*api.Node, error) {
	id, err := nodeID(filepath.Join(c.Dir, "node-id"))
	if err != nil {
		return nil, err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	name := c.Name
	if name == "" {
		name = hostname
	}
	n := &api.Node{
		ID: id, Name: name, Datacenter: c.Datacenter, NodeClass: c.Class, NodePool: "default",
		HTTPAddr: c.HTTPAddr, Meta: c.Meta, Drivers: map[string]*api.DriverInfo{}, Links: map[string]string{},
		Status: "ready", SchedulingEligibility: api.NodeSchedulingEligible, StatusUpdatedAt: time.Now().Unix(),
		NodeResources: resources(c),
		Events: []*api.NodeEvent{{
			Message: "Node registered", Subsystem: "Cluster", Timestamp: time.Now(),
		}},
		ReservedResources: &api.NodeReservedResources{},
	}
	n.Attributes = attributes(n, hostname, c.Version)
	// The form before Nomad 0.9; its own command still reads it.
	cpu, memory, disk, none := int(n.NodeResources.Cpu.CpuShares), int(n.NodeResources.Memory.MemoryMB), int(n.NodeResources.Disk.DiskMB), 0
	n.Resources = &api.Resources{CPU: &cpu, MemoryMB: &memory, DiskMB: &disk, Cores: &none, IOPS: &none}
	n.Reserved = &api.Resources{CPU: &none, MemoryMB: &none, DiskMB: &none, Cores: &none, IOPS: &none}
	return n, nil
}

// nodeID reads the node's id, and makes one at the first start.
func nodeID(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	id := ident.UUID()
	return id, os.WriteFile(path, []byte(id+"\n"), 0o600)
}

func resources(c Config) *api.NodeResources {
	topology := host.LocalNode().GetDriver().GetTopology()
	r := &api.NodeResources{MinDynamicPort: 20000, MaxDynamicPort: 32000}
	for _, core := range topology.GetCores() {
		r.Cpu.CpuShares += int64(max(core.GetBaseSpeed(), core.GetMaxSpeed(), core.GetGuessSpeed()))
		r.Cpu.ReservableCpuCores = append(r.Cpu.ReservableCpuCores, uint16(core.GetCoreId()))
	}
	r.Cpu.TotalCpuCores = uint16(runtime.NumCPU())
	r.Memory.MemoryMB = max(0, totalMemory()>>20-int64(c.ReservedMemoryMB))
	var disk unix.Statfs_t
	if unix.Statfs(c.Dir, &disk) == nil {
		r.Disk.DiskMB = int64(disk.Bavail) * disk.Bsize >> 20
	}
	r.Networks = []*api.NetworkResource{{Mode: "host", Device: "lo", CIDR: "127.0.0.1/32", IP: "127.0.0.1"}}
	return r
}

// totalMemory is MemTotal of /proc/meminfo, in bytes.
func totalMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}

func attributes(n *api.Node, hostname, version string) map[string]string {
	out := map[string]string{
		"cpu.arch":                  runtime.GOARCH,
		"cpu.numcores":              strconv.Itoa(int(n.NodeResources.Cpu.TotalCpuCores)),
		"cpu.reservablecores":       strconv.Itoa(len(n.NodeResources.Cpu.ReservableCpuCores)),
		"cpu.totalcompute":          strconv.FormatInt(n.NodeResources.Cpu.CpuShares, 10),
		"cpu.usablecompute":         strconv.FormatInt(n.NodeResources.Cpu.CpuShares, 10),
		"kernel.name":               runtime.GOOS,
		"memory.totalbytes":         strconv.FormatInt(totalMemory(), 10),
		"nomad.version":             version,
		"os.signals":                "SIGABRT,SIGALRM,SIGBUS,SIGCHLD,SIGCONT,SIGFPE,SIGHUP,SIGILL,SIGINT,SIGIO,SIGIOT,SIGKILL,SIGPIPE,SIGPROF,SIGQUIT,SIGSEGV,SIGSTOP,SIGSYS,SIGTERM,SIGTRAP,SIGTSTP,SIGTTIN,SIGTTOU,SIGURG,SIGUSR1,SIGUSR2,SIGWINCH,SIGXCPU,SIGXFSZ",
		"unique.hostname":           hostname,
		"unique.network.ip-address": "127.0.0.1",
		"unique.storage.bytesfree":  strconv.FormatInt(n.NodeResources.Disk.DiskMB<<20, 10),
	}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		out["kernel.version"] = unix.ByteSliceToString(uts.Release[:])
		out["kernel.arch"] = unix.ByteSliceToString(uts.Machine[:])
	}
	for name, value := range osRelease() {
		out[name] = value
	}
	return out
}

func osRelease() map[string]string {
	out := map[string]string{}
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch name {
		case "ID":
			out["os.name"] = value
		case "VERSION_ID":
			out["os.version"] = value
		}
	}
	return out
}
