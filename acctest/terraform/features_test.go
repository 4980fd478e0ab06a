// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// feature is something that not every CLI knows, by the key under which those that do print
// it of a provider: what a CLI says of its version tells nothing.
type feature string

const (
	identities   feature = "resource_identity_schemas"
	actionBlocks feature = "action_schemas"
	queries      feature = "list_resource_schemas"
)

func (c cli) lacks(f feature) string {
	words := map[feature]string{identities: "identities (Terraform and OpenTofu 1.12 do)", actionBlocks: "actions (Terraform 1.14 does)", queries: "`query` (Terraform 1.14 does)"}
	return fmt.Sprintf("this %s knows no %s", c.name, words[f])
}

// printed is what each CLI prints of the provider, by its path.
var printed sync.Map

func (c cli) knows(t *testing.T, f feature) bool {
	t.Helper()
	keys, _ := printed.LoadOrStore(c.path, sync.OnceValues(c.schema))
	all, err := keys.(func() (map[string]json.RawMessage, error))()
	if err != nil {
		t.Fatal(err)
	}
	return len(all[string(f)]) > 0
}

func (c cli) schema() (map[string]json.RawMessage, error) {
	dir, err := os.MkdirTemp("", "tfacc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bin, err := build()
	if err != nil {
		return nil, err
	}
	rc := fmt.Sprintf("provider_installation {\n  dev_overrides {\n    \"botscreen/botscreen\" = %q\n  }\n  direct {}\n}\n", bin)
	for name, text := range map[string]string{"cli.rc": rc, "main.tf": "terraform {\n  required_providers {\n    botscreen = { source = \"botscreen/botscreen\" }\n  }\n}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(c.path, "providers", "schema", "-json")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TF_CLI_CONFIG_FILE=" + filepath.Join(dir, "cli.rc"), "CHECKPOINT_DISABLE=1"}
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s providers schema: %w\n%s", c.name, err, complaints.Bytes())
	}
	var doc struct {
		Schemas map[string]map[string]json.RawMessage `json:"provider_schemas"`
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		return nil, err
	}
	for _, keys := range doc.Schemas {
		return keys, nil
	}
	return nil, fmt.Errorf("%s prints no schema", c.name)
}
