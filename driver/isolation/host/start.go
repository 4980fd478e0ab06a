// SPDX-License-Identifier: MPL-2.0

package host

import (
	"os/exec"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/namespace"
)

// start launches cmd in a mount namespace of its own.
func start(cmd *exec.Cmd, order isolation.Order) error {
	if order.Account.Inherited {
		return cmd.Start() // without privilege there is no namespace to be had
	}
	return namespace.Start(cmd, func() error { return enterNamespace(order) }, nil)
}

// enterNamespace gives this thread its own view of the node: an account file that
// names the session's uid, and nothing in the directories that hold the node's and the
// job's secrets (X21).
func enterNamespace(order isolation.Order) error {
	if err := namespace.EnterNetwork(order.NetworkNamespace); err != nil {
		return err
	}
	if err := namespace.OwnMounts(); err != nil {
		return err
	}
	if err := namespace.NameAccount(order.Scratch, order.Account, order.Home); err != nil {
		return err
	}
	for _, dir := range order.Hidden {
		if err := namespace.Hide(dir); err != nil {
			return err
		}
	}
	return nil
}
