// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"context"

	"github.com/botscreen/botscreen/driver/fingerprint"
	"github.com/botscreen/botscreen/driver/isolation/apptainer"
	"github.com/botscreen/botscreen/driver/isolation/docker"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/requirements"
	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/nomadplugin"
)

// Fingerprint says what this node can run and, for everything it cannot, why not. It
// answers at once and again whenever something changes.
func (d *Driver) Fingerprint(ctx context.Context, send func(*nomadplugin.Fingerprint) error) error {
	if err := d.begin(); err != nil {
		return err
	}
	d.mu.Lock()
	watcher := newFingerprinter(d.settings, d.engines, d.versions)
	d.mu.Unlock()
	return watcher.Watch(ctx, func(s fingerprint.Snapshot) error {
		defer func() { go d.giveBack() }()
		return send(fingerprintMessage(s))
	})
}

// giveBack returns the memory that is not needed while nothing happens, after what touches
// much of the program: a plugin waits nearly all of its life.
func (d *Driver) giveBack() {
	if err := process.Rest(); err != nil {
		d.log.Warn("memory is not given back", "error", err)
	}
}

func newFingerprinter(settings task.Settings, e engines, versions *requirements.Memory) *fingerprint.Fingerprinter {
	order := make([]string, len(settings.Order))
	for i, kind := range settings.Order {
		order[i] = string(kind)
	}
	return &fingerprint.Fingerprinter{
		Version: Version, Order: order, Band: settings.Band, Requirements: requirements.Host{Versions: versions},
		Probes: []fingerprint.Probe{fingerprint.NewHostProbe(requirements.Host{}, settings.AllowHost), dockerProbe{e.docker}, apptainerProbe{e.apptainer}},
	}
}

// dockerProbe tells whether the engine can run screens.
type dockerProbe struct{ engine *docker.Boundary }

func (dockerProbe) Kind() string { return fingerprint.Docker }

func (p dockerProbe) Check(ctx context.Context) fingerprint.Report {
	health := p.engine.Check(ctx)
	return fingerprint.Report{Ready: health.Ready, Reason: health.Reason, Version: health.Version}
}

// apptainerProbe tells whether apptainer can run screens.
type apptainerProbe struct{ boundary *apptainer.Boundary }

func (apptainerProbe) Kind() string { return fingerprint.Apptainer }

func (p apptainerProbe) Check(ctx context.Context) fingerprint.Report {
	health := p.boundary.Check(ctx)
	return fingerprint.Report{Ready: health.Ready, Reason: health.Reason, Version: health.Version}
}

func fingerprintMessage(s fingerprint.Snapshot) *nomadplugin.Fingerprint {
	message := &nomadplugin.Fingerprint{
		Health: nomadplugin.Healthy, HealthDescription: s.Description,
		Attributes: make(map[string]*nomadplugin.Attribute, len(s.Attributes)),
	}
	if s.Health != fingerprint.Healthy {
		message.Health = nomadplugin.Unhealthy
	}
	for name, value := range s.Attributes {
		if value.Numeric {
			message.Attributes[name] = nomadplugin.IntAttribute(value.Int, "")
		} else {
			message.Attributes[name] = nomadplugin.StringAttribute(value.Text)
		}
	}
	return message
}
