// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/screen"
)

var imageActions = []control.ImageAction{control.ImageShow, control.ImageCheck, control.ImagePull, control.ImageKeep, control.ImageSwitch}

// image answers control.CommandImage. A refusal is a sentence and an exit code, as a
// shell has it: Nomad loses the text of an error.
func image(ctx context.Context, t *task.Task, req nomadplugin.ExecRequest) (*nomadplugin.ExitResult, error) {
	refuse := func(sentence string) (*nomadplugin.ExitResult, error) {
		_, _ = fmt.Fprintln(req.Stderr, sentence)
		return &nomadplugin.ExitResult{ExitCode: notAllowed}, nil
	}
	if allowed := t.View().Exec.Role; allowed != screen.RoleOperator {
		return refuse(fmt.Sprintf("%s needs exec { role = \"operator\" }; this screen allows %q.", control.CommandImage, allowed))
	}
	if len(req.Command) != 2 || !slices.Contains(imageActions, control.ImageAction(req.Command[1])) {
		return refuse(fmt.Sprintf("%s needs one word behind it: show, check, pull, keep or switch.", control.CommandImage))
	}
	state, err := t.Image(ctx, control.ImageAction(req.Command[1]))
	if err != nil {
		return refuse(task.ExplainImage(err))
	}
	if err := json.NewEncoder(req.Stdout).Encode(state); err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	return &nomadplugin.ExitResult{}, nil
}
