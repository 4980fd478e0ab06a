// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/docker/docker/api/types/container"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/namespace"
	"github.com/botscreen/botscreen/driver/process"
)

// joinElsewhere starts the two halves of the pipe and returns the one on this node, which
// stands for the session here: it ends with the container, and the screen ends with it.
func (b *Boundary) joinElsewhere(ctx context.Context, id string, order isolation.Order) (process.Identity, error) {
	stream, err := b.execPipe(ctx, id, order)
	if err != nil {
		return process.Identity{}, fmt.Errorf("join session: %w", err)
	}
	defer stream.Close()
	identity, err := startHalf(order, stream)
	if err != nil {
		return process.Identity{}, fmt.Errorf("join session: %w", err)
	}
	return identity, nil
}

// execPipe runs the half inside and returns its input and output. The half on this node
// gets the connection and nothing else of the engine: over it nothing can be asked any more.
func (b *Boundary) execPipe(ctx context.Context, id string, order isolation.Order) (*os.File, error) {
	user := strconv.FormatUint(uint64(pipeUser(order.Account)), 10)
	made, err := b.api.ContainerExecCreate(ctx, id, container.ExecOptions{
		User: user + ":" + user, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Cmd: []string{binaryElsewhere, "pipe", "--serve", order.DialDir + "/s"},
	})
	if err != nil {
		return nil, err
	}
	attached, err := b.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return nil, err
	}
	defer attached.Close()
	conn, ok := attached.Conn.(*net.UnixConn)
	// The half inside waits for a greeting: what is read ahead already is none of its words.
	if !ok || attached.Reader.Buffered() > 0 {
		return nil, errors.New("the engine's connection cannot be handed on")
	}
	return conn.File()
}

// startHalf starts the half on this node as the screen's own account: it reads what comes
// from inside.
func startHalf(order isolation.Order, stream *os.File) (process.Identity, error) {
	log, err := reopen(order.ErrorLog)
	if err != nil {
		return process.Identity{}, err
	}
	defer log.Close()
	cmd := exec.Command(order.Binary, "pipe", "--dial", order.DialDir+"/s")
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin"}, "/"
	cmd.Stdin, cmd.Stderr = stream, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: order.Account.UID, Gid: order.Account.GID}}
	if err := cmd.Start(); err != nil {
		return process.Identity{}, err
	}
	identity, err := process.Observe(cmd.Process.Pid)
	if err == nil {
		plain := order.Account
		plain.Groups = nil // what they give is inside
		err = namespace.CheckIdentity(cmd.Process.Pid, plain)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return process.Identity{}, err
	}
	go func() { _ = cmd.Wait() }() // reap; its end is seen through the pidfd
	return identity, nil
}
