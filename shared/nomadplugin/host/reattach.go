// SPDX-License-Identifier: MPL-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/hashicorp/go-plugin"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
)

// Reattach is how a later host finds a plugin process that outlived this one. It is written as JSON
// by whoever keeps state.
type Reattach struct {
	Protocol string `json:"protocol"`
	Network  string `json:"network"`
	Address  string `json:"address"`
	PID      int    `json:"pid"`
	// StartTime is the process's, in clock ticks since boot: a pid alone may be somebody else's.
	StartTime uint64 `json:"start_time"`
}

func (p *process) reattach() (*Reattach, error) {
	config := p.client.ReattachConfig()
	if config == nil {
		return nil, errors.New("plugin has no address")
	}
	started, err := startTime(p.pid)
	if err != nil {
		return nil, err
	}
	return &Reattach{
		Protocol:  string(config.Protocol),
		Network:   config.Addr.Network(),
		Address:   config.Addr.String(),
		PID:       p.pid,
		StartTime: started,
	}, nil
}

// reconnect takes over the process of a record: PluginInfo must name the driver that was loaded.
func (h *Host) reconnect(ctx context.Context, record *Reattach) (*process, error) {
	started, err := startTime(record.PID)
	if err != nil {
		return nil, err
	}
	if started != record.StartTime {
		return nil, fmt.Errorf("process %d is another one by now", record.PID)
	}
	if record.Protocol != string(plugin.ProtocolGRPC) || record.Network != "unix" {
		return nil, fmt.Errorf("record is for %s over %s: want grpc over unix", record.Protocol, record.Network)
	}
	config := h.clientConfig(nomadplugin.BasePluginName, nomadplugin.DriverPluginName)
	config.Reattach = &plugin.ReattachConfig{
		Protocol:        plugin.ProtocolGRPC,
		ProtocolVersion: int(nomadplugin.Handshake.ProtocolVersion),
		Addr:            &net.UnixAddr{Net: record.Network, Name: record.Address},
		Pid:             record.PID,
	}
	p, err := attach(config)
	if err != nil {
		return nil, err
	}
	p.pid = record.PID
	info, err := p.base.PluginInfo(ctx, &basepb.PluginInfoRequest{})
	if err == nil && info.GetName() != h.info.Name {
		err = fmt.Errorf("it is %q: want %q", info.GetName(), h.info.Name)
	}
	if err != nil {
		_ = p.conn.Close()
		return nil, err
	}
	return p, nil
}

// attach is connect for a process that is not ours to kill when something is wrong with it.
func attach(config *plugin.ClientConfig) (*process, error) {
	client := plugin.NewClient(config)
	protocol, err := client.Client()
	if err != nil {
		return nil, err
	}
	raw, err := protocol.Dispense(nomadplugin.DriverPluginName)
	if err != nil {
		return nil, err
	}
	p, ok := raw.(*process)
	if !ok {
		return nil, fmt.Errorf("dispense: got %T", raw)
	}
	p.client = client
	return p, nil
}

// startTime is field 22 of /proc/<pid>/stat (proc(5)).
func startTime(pid int) (uint64, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	// The command in field 2 may contain anything, so count from its closing parenthesis.
	_, rest, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return 0, fmt.Errorf("process %d: stat has too few fields", pid)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// kill ends the process at once, whatever it is doing.
func (p *process) kill() {
	if p.exited.Err() == nil {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
}
