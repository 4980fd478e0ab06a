// SPDX-License-Identifier: MPL-2.0

package host

import (
	"context"
	"fmt"
	"time"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

// shutdownLimit is what a Nomad agent grants the Shutdown call.
const shutdownLimit = 2 * time.Second

// lock takes the token of the process, unless the caller gives up first.
func (h *Host) lock(ctx context.Context) error {
	select {
	case <-h.dispense:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *Host) unlock() { h.dispense <- struct{}{} }

// Instance is the plugin's process: the one that runs, the one of the reattach record, or a new one
// that has been configured and initialised. Callers share it.
func (h *Host) Instance(ctx context.Context) (*Instance, error) {
	if err := h.lock(ctx); err != nil {
		return nil, err
	}
	defer h.unlock()
	switch {
	case h.closed:
		return nil, ErrClosed
	case h.instance != nil && !h.instance.dead():
		return h.instance, nil
	case h.instance != nil:
		h.instance.release()
		h.instance = nil
	}
	if h.reattach != nil {
		record := h.reattach
		h.reattach = nil
		i, err := h.adopt(ctx, record)
		if err == nil {
			h.instance = i
			return i, nil
		}
		h.options.Logger.Warn("plugin process of the reattach record not usable, starting another",
			"plugin", h.info.Name, "pid", record.PID, "error", err)
	}
	i, err := h.start(ctx)
	if err != nil {
		return nil, err
	}
	h.instance = i
	return i, nil
}

// adopt takes over a running process: it keeps the configuration it has.
func (h *Host) adopt(ctx context.Context, record *Reattach) (*Instance, error) {
	p, err := h.reconnect(ctx, record)
	if err != nil {
		return nil, fmt.Errorf("reattach plugin %s: %w", h.info.Name, err)
	}
	i := newInstance(p, true)
	if err := i.Init(ctx); err != nil {
		p.end(ctx)
		i.release()
		return nil, fmt.Errorf("init of plugin %s failed: %w", h.info.Name, err)
	}
	return i, nil
}

func (h *Host) start(ctx context.Context) (*Instance, error) {
	p, err := h.launch(ctx, nomadplugin.BasePluginName, nomadplugin.DriverPluginName)
	if err != nil {
		return nil, err
	}
	i := newInstance(p, false)
	record, err := h.configure(ctx, i)
	if err != nil {
		p.end(ctx)
		i.release()
		return nil, err
	}
	if h.options.StoreReattach != nil {
		h.options.StoreReattach(record)
	}
	return i, nil
}

func (h *Host) configure(ctx context.Context, i *Instance) (*Reattach, error) {
	if err := i.SetConfig(ctx, h.setConfig(h.options.Node)); err != nil {
		return nil, fmt.Errorf("configure plugin %s: %w", h.info.Name, err)
	}
	if err := i.Init(ctx); err != nil {
		return nil, fmt.Errorf("init of plugin %s failed: %w", h.info.Name, err)
	}
	record, err := i.proc.reattach()
	if err != nil {
		return nil, fmt.Errorf("configure plugin %s: %w", h.info.Name, err)
	}
	return record, nil
}

// Reattach is the record of the running process, nil when there is none.
func (h *Host) Reattach(ctx context.Context) (*Reattach, error) {
	if err := h.lock(ctx); err != nil {
		return nil, err
	}
	defer h.unlock()
	if h.instance == nil || h.instance.dead() {
		return h.reattach, nil
	}
	return h.instance.proc.reattach()
}

// Close ends the plugin's process and leaves its tasks running: streams are cancelled, Shutdown is
// announced, the process gets 2 s to exit and is killed then, or when ctx is done. Close may be
// called again.
func (h *Host) Close(ctx context.Context) error {
	i, err := h.shut(ctx)
	if i == nil || err != nil {
		return err
	}
	defer i.release()
	i.cancel()
	bounded, cancel := context.WithTimeout(ctx, shutdownLimit)
	defer cancel()
	err = i.announce(bounded)
	i.proc.end(ctx)
	if h.options.StoreReattach != nil {
		h.options.StoreReattach(nil)
	}
	return err
}

// Detach lets go of the plugin's process, which keeps running, and returns the record by which
// another host finds it, nil when none runs.
func (h *Host) Detach(ctx context.Context) (*Reattach, error) {
	i, err := h.shut(ctx)
	if i == nil || err != nil {
		return nil, err
	}
	record, err := i.proc.reattach()
	i.release()
	return record, err
}

// shut refuses further use and returns the live process, if any.
func (h *Host) shut(ctx context.Context) (*Instance, error) {
	if err := h.lock(ctx); err != nil {
		return nil, err
	}
	defer h.unlock()
	i := h.instance
	h.closed, h.instance = true, nil
	if i != nil && i.dead() {
		i.release()
		i = nil
	}
	return i, nil
}
