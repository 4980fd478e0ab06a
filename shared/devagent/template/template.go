// SPDX-License-Identifier: MPL-2.0

// Package template renders the templates of a task: text in which
// {{ with nomadVar "path" }} … {{ .key }} … {{ end }} puts the items of Nomad
// variables, {{ .key.Value | toJSON }} puts one into quotes. Every other function and statement is refused by name.
package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"

	"github.com/hashicorp/nomad/api"
)

// maxOutput bounds a rendered template, in bytes.
const maxOutput = 4 << 20

// Template is one template of a task, checked.
type Template struct {
	// Dest is the destination as written, relative to the task's directory.
	Dest string
	// Env says that the result is also part of the task's environment.
	Env          bool
	ChangeMode   string
	ChangeSignal string
	Perms        uint32
	// ErrMissingKey makes a key that a variable does not have an error.
	ErrMissingKey bool

	root  *parse.ListNode
	paths []string
}

// Compile checks a template as a whole: all faults in one error.
func Compile(t *api.Template) (*Template, error) {
	out := &Template{
		Dest: value(t.DestPath), Env: t.Envvars != nil && *t.Envvars,
		ChangeMode: value(t.ChangeMode), ChangeSignal: value(t.ChangeSignal),
		ErrMissingKey: t.ErrMissingKey != nil && *t.ErrMissingKey,
	}
	var faults []error
	faults = append(faults, out.place(t), out.change())
	root, err := parseText(value(t.EmbeddedTmpl), value(t.LeftDelim), value(t.RightDelim))
	if err != nil {
		return nil, errors.Join(append(faults, err)...)
	}
	out.root = root
	faults = append(faults, out.check(root, false))
	return out, errors.Join(faults...)
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// place checks where the result goes: below the task's directory.
func (t *Template) place(given *api.Template) error {
	clean := filepath.Clean("/" + t.Dest)
	switch {
	case t.Dest == "":
		return errors.New("a template needs a destination")
	case filepath.IsAbs(t.Dest), slices.Contains(strings.Split(t.Dest, "/"), ".."), clean == "/":
		return fmt.Errorf("destination %q: want a file below the task's directory", t.Dest)
	}
	t.Perms = 0o644
	if text := value(given.Perms); text != "" {
		n, err := strconv.ParseUint(text, 8, 12)
		if err != nil {
			return fmt.Errorf("perms %q: want an octal mode such as 0644", text)
		}
		t.Perms = uint32(n)
	}
	return nil
}

func (t *Template) change() error {
	switch t.ChangeMode {
	case "":
		t.ChangeMode = "restart"
	case "noop", "restart":
	case "signal":
		if t.ChangeSignal == "" {
			return errors.New("must specify signal value when change mode is signal")
		}
	default:
		return fmt.Errorf("change_mode %q: the embedded agent knows noop, restart and signal", t.ChangeMode)
	}
	return nil
}

func parseText(text, left, right string) (*parse.ListNode, error) {
	// The only function there is; its value is not used, the tree is walked here.
	functions := map[string]any{"nomadVar": func(string) any { return nil }, "toJSON": func(any) any { return nil }}
	trees, err := parse.Parse("template", text, left, right, functions)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	root := &parse.ListNode{}
	for name, tree := range trees {
		if name != "template" {
			return nil, fmt.Errorf("define %q: only {{ with nomadVar }} is run by the embedded agent", name)
		}
		if tree.Root != nil {
			root = tree.Root
		}
	}
	return root, nil
}

// check walks a list and collects what is not run.
func (t *Template) check(list *parse.ListNode, inVariable bool) error {
	if list == nil {
		return nil
	}
	var faults []error
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.TextNode, *parse.CommentNode:
		case *parse.WithNode:
			path, err := variablePath(n.Pipe)
			if err != nil {
				faults = append(faults, err)
				continue
			}
			if !slices.Contains(t.paths, path) {
				t.paths = append(t.paths, path)
			}
			faults = append(faults, t.check(n.List, true), t.check(n.ElseList, inVariable))
		case *parse.ActionNode:
			if _, _, err := itemKey(n.Pipe); err != nil || !inVariable {
				faults = append(faults, refused(n))
			}
		default:
			faults = append(faults, refused(n))
		}
	}
	return errors.Join(faults...)
}

func refused(n parse.Node) error {
	return fmt.Errorf("%s: only {{ with nomadVar \"path\" }} and {{ .key }} in it are run by the embedded agent", n)
}

// variablePath reads the pipe of {{ with nomadVar "path" }}.
func variablePath(p *parse.PipeNode) (string, error) {
	if len(p.Decl) == 0 && len(p.Cmds) == 1 && len(p.Cmds[0].Args) == 2 {
		f, isFunction := p.Cmds[0].Args[0].(*parse.IdentifierNode)
		arg, isText := p.Cmds[0].Args[1].(*parse.StringNode)
		if isFunction && isText && f.Ident == "nomadVar" {
			return arg.Text, nil
		}
	}
	return "", fmt.Errorf("with %s: only {{ with nomadVar \"path\" }} is run by the embedded agent", p)
}

// itemKey reads the pipe of {{ .key }}, or of {{ .key.Value | toJSON }}, which puts the
// value into quotes.
func itemKey(p *parse.PipeNode) (key string, quoted bool, err error) {
	if len(p.Decl) != 0 || len(p.Cmds) == 0 || len(p.Cmds) > 2 || len(p.Cmds[0].Args) != 1 {
		return "", false, errNoKey
	}
	f, ok := p.Cmds[0].Args[0].(*parse.FieldNode)
	// .key.Value is the long form of .key.
	if !ok || len(f.Ident) > 2 || len(f.Ident) == 2 && f.Ident[1] != "Value" {
		return "", false, errNoKey
	}
	if len(p.Cmds) == 1 {
		return f.Ident[0], false, nil
	}
	// Of .key itself Nomad would make an object.
	call, ok := p.Cmds[1].Args[0].(*parse.IdentifierNode)
	if !ok || call.Ident != "toJSON" || len(p.Cmds[1].Args) != 1 || len(f.Ident) != 2 {
		return "", false, errNoKey
	}
	return f.Ident[0], true, nil
}

var errNoKey = errors.New("not a key")

// Paths are the variables that the template reads.
func (t *Template) Paths() []string { return slices.Clone(t.paths) }

// Lookup gives the items of a variable.
type Lookup func(path string) (items map[string]string, ok bool)

// Render gives the text. missing lists variables that do not exist: a task waits for
// them.
func (t *Template) Render(lookup Lookup) (text string, missing []string, err error) {
	for _, path := range t.paths {
		if _, ok := lookup(path); !ok {
			missing = append(missing, path)
		}
	}
	if len(missing) > 0 {
		return "", missing, nil
	}
	var b strings.Builder
	if err := t.render(&b, t.root, nil, lookup); err != nil {
		return "", nil, err
	}
	return b.String(), nil, nil
}

func (t *Template) render(b *strings.Builder, list *parse.ListNode, items map[string]string, lookup Lookup) error {
	if list == nil {
		return nil
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			b.Write(n.Text)
		case *parse.ActionNode:
			key, quoted, _ := itemKey(n.Pipe)
			item, ok := items[key]
			if !ok && t.ErrMissingKey {
				return fmt.Errorf("the variable has no key %q", key)
			}
			if !ok {
				item = "<no value>"
			}
			if quoted {
				text, err := json.Marshal(item)
				if err != nil {
					return fmt.Errorf("the key %q: %w", key, err)
				}
				item = string(text)
			}
			b.WriteString(item)
		case *parse.WithNode:
			path, _ := variablePath(n.Pipe)
			inner, ok := lookup(path)
			branch := n.List
			if !ok || len(inner) == 0 {
				branch, inner = n.ElseList, items
			}
			if err := t.render(b, branch, inner, lookup); err != nil {
				return err
			}
		}
		if b.Len() > maxOutput {
			return fmt.Errorf("the result has more than %d bytes", maxOutput)
		}
	}
	return nil
}

// EnvVars reads a rendered template as NAME=value lines. Blank lines and comments
// are skipped; a value may stand in quotes.
func EnvVars(text string) (map[string]string, error) {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			// The line may hold a secret: it is not shown.
			return nil, errors.New("a line of the environment template is not NAME=value")
		}
		out[name] = unquote(strings.TrimSpace(value))
	}
	return out, nil
}

func unquote(s string) string {
	if len(s) < 2 || s[0] != s[len(s)-1] {
		return s
	}
	switch s[0] {
	case '\'':
		return s[1 : len(s)-1]
	case '"':
		if plain, err := strconv.Unquote(s); err == nil {
			return plain
		}
		return s[1 : len(s)-1]
	}
	return s
}
