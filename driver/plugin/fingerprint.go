// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"context"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

// Fingerprint says what this node can run.
func (d *Driver) Fingerprint(ctx context.Context, send func(*nomadplugin.Fingerprint) error) error {
	if err := send(&nomadplugin.Fingerprint{Health: nomadplugin.Healthy, HealthDescription: "Healthy",
		Attributes: map[string]*nomadplugin.Attribute{"driver.botscreen.version": nomadplugin.StringAttribute(Version)}}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
