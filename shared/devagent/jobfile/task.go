// SPDX-License-Identifier: MPL-2.0

package jobfile

import "github.com/hashicorp/nomad/api"

func (s *section) task() *api.Task {
	t := &api.Task{Name: s.labels[0]}
	t.Driver = s.text("driver")
	t.User = s.text("user")
	t.KillTimeout = s.duration("kill_timeout")
	t.KillSignal = s.text("kill_signal")
	t.Constraints = s.constraints()
	t.Env = s.textMap("env")
	t.Meta = s.textMap("meta")
	s.one("config", func(b *section) { t.Config = b.config() })
	s.one("resources", func(b *section) { t.Resources = b.resources() })
	s.one("restart", func(b *section) { t.RestartPolicy = b.restart() })
	s.one("logs", func(b *section) { t.LogConfig = b.logs() })
	s.blocks("template", 0, func(b *section) { t.Templates = append(t.Templates, b.template()) })
	s.done()
	return t
}

func (s *section) resources() *api.Resources {
	r := &api.Resources{
		CPU:         s.integer("cpu"),
		Cores:       s.integer("cores"),
		MemoryMB:    s.integer("memory"),
		MemoryMaxMB: s.integer("memory_max"),
	}
	s.done()
	return r
}

func (s *section) logs() *api.LogConfig {
	l := &api.LogConfig{
		MaxFiles:      s.integer("max_files"),
		MaxFileSizeMB: s.integer("max_file_size"),
		Disabled:      s.boolean("disabled"),
	}
	s.done()
	return l
}

func (s *section) template() *api.Template {
	t := &api.Template{
		EmbeddedTmpl:  s.str("data"),
		DestPath:      s.str("destination"),
		ChangeMode:    s.str("change_mode"),
		ChangeSignal:  s.str("change_signal"),
		Splay:         s.duration("splay"),
		Perms:         s.str("perms"),
		LeftDelim:     s.str("left_delimiter"),
		RightDelim:    s.str("right_delimiter"),
		Envvars:       s.boolean("env"),
		ErrMissingKey: s.boolean("error_on_missing_key"),
	}
	s.done()
	return t
}
