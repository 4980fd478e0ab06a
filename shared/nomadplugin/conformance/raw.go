// SPDX-License-Identifier: MPL-2.0

package conformance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

// rawPlugin is the plugin started by hand, without go-plugin on this side: nobody reads its
// redirected output, and its standard error is ours to look at or to break.
type rawPlugin struct {
	cmd       *exec.Cmd
	handshake string
	conn      *grpc.ClientConn
	// logEnd is the reading end of the plugin's standard error.
	logEnd *os.File
	exited chan struct{}

	mu  sync.Mutex // guards log
	log bytes.Buffer
}

// startRaw starts the plugin as an agent does and connects.
func (s *suite) startRaw() *rawPlugin {
	s.Helper()
	p := &rawPlugin{cmd: exec.Command(s.Binary, s.Args...), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(),
		nomadplugin.Handshake.MagicCookieKey+"="+nomadplugin.Handshake.MagicCookieValue,
		"PLUGIN_PROTOCOL_VERSIONS=2", "PLUGIN_MIN_PORT=10000", "PLUGIN_MAX_PORT=25000")
	stdout, err := p.cmd.StdoutPipe()
	s.must(err)
	logEnd, logStart, err := os.Pipe()
	s.must(err)
	p.logEnd, p.cmd.Stderr = logEnd, logStart
	s.must(p.cmd.Start())
	_ = logStart.Close()
	go func() { _, _ = io.Copy(p, logEnd) }()
	s.Cleanup(func() { p.end() })
	lines := bufio.NewReader(stdout)
	p.handshake, err = lines.ReadString('\n')
	s.must(err)
	go func() {
		// Whatever else comes on standard output is a fault; see C17.
		rest, _ := io.ReadAll(lines)
		_, _ = p.Write(rest)
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	fields := strings.Split(strings.TrimSpace(p.handshake), "|")
	if len(fields) < 4 {
		s.Fatalf("handshake %q", p.handshake)
	}
	p.conn, err = grpc.NewClient("unix://"+fields[3], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30), grpc.MaxCallRecvMsgSize(1<<30)))
	s.must(err)
	return p
}

func (p *rawPlugin) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(data)
}

func (p *rawPlugin) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// controller ends the plugin's server as go-plugin's client does.
func (p *rawPlugin) controller(ctx context.Context) error {
	return p.conn.Invoke(ctx, "/plugin.GRPCController/Shutdown", &emptypb.Empty{}, &emptypb.Empty{})
}

func (p *rawPlugin) end() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	_ = p.logEnd.Close()
}

func (p *rawPlugin) waitExit(limit time.Duration) error {
	select {
	case <-p.exited:
		return nil
	case <-time.After(limit):
		return errors.New("still running")
	}
}
