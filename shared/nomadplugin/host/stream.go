// SPDX-License-Identifier: MPL-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// receive opens a stream and hands over its messages until it ends, which is nil, or fails. An error
// of each cancels the stream and is returned.
func receive[Req, Msg any](ctx context.Context, i *Instance, name string, req *Req, each func(*Msg) error,
	open func(context.Context, *Req, ...callOption) (grpc.ServerStreamingClient[Msg], error)) error {
	callCtx, cancel := i.callContext(ctx)
	defer cancel()
	stream, err := open(callCtx, req)
	if err != nil {
		return i.classify(ctx, name, err)
	}
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return i.classify(ctx, name, err)
		}
		if err := each(msg); err != nil {
			return err
		}
	}
}

// Fingerprint hands over fingerprints until the stream ends.
func (i *Instance) Fingerprint(ctx context.Context, each func(*nomadplugin.Fingerprint) error) error {
	return receive(ctx, i, "Fingerprint", &driverpb.FingerprintRequest{}, each, i.proc.driver.Fingerprint)
}

// TaskEvents hands over the events of all tasks until the stream ends.
func (i *Instance) TaskEvents(ctx context.Context, each func(*nomadplugin.TaskEvent) error) error {
	return receive(ctx, i, "TaskEvents", &driverpb.TaskEventsRequest{}, each, i.proc.driver.TaskEvents)
}

// TaskStats hands over samples until the task has ended. A sample without a time is dropped.
func (i *Instance) TaskStats(ctx context.Context, id nomadplugin.TaskID, interval time.Duration,
	each func(*nomadplugin.TaskStats) error) error {
	req := &driverpb.TaskStatsRequest{TaskId: string(id), CollectionInterval: durationpb.New(interval)}
	return receive(ctx, i, "TaskStats", req, func(resp *driverpb.TaskStatsResponse) error {
		if err := checkStats(resp.GetStats()); err != nil {
			return err
		}
		if resp.GetStats().GetTimestamp().CheckValid() != nil {
			return nil
		}
		return each(resp.GetStats())
	}, i.proc.driver.TaskStats)
}

func checkStats(stats *nomadplugin.TaskStats) error {
	if stats.GetAggResourceUsage() == nil {
		return malformed("TaskStats", "no aggregated usage")
	}
	for pid, usage := range stats.GetResourceUsageByPid() {
		if usage == nil {
			return malformed("TaskStats", fmt.Sprintf("no usage for pid %s", pid))
		}
	}
	return nil
}

// Fingerprint keeps the fingerprint stream open over all processes of the plugin until ctx is done,
// and starts them as needed. What cannot be had is reported as an undetected, unhealthy driver: a
// stream that fails, a message that says so, a process that does not start. An ended stream is opened
// again at once; starts are retried after 5 s, doubling up to 2 min.
func (h *Host) Fingerprint(ctx context.Context, each func(*nomadplugin.Fingerprint)) error {
	return h.follow(ctx, func(ctx context.Context, i *Instance) error {
		err := i.Fingerprint(ctx, func(f *nomadplugin.Fingerprint) error {
			if f.GetErr() != "" {
				f = unfit(errors.New(f.GetErr()))
			}
			each(f)
			return nil
		})
		if err != nil && ctx.Err() == nil {
			each(unfit(err))
		}
		return err
	}, func(err error) { each(unfit(err)) })
}

func unfit(cause error) *nomadplugin.Fingerprint {
	return &nomadplugin.Fingerprint{
		Health:            nomadplugin.Undetected,
		HealthDescription: "failed to fingerprint driver: " + cause.Error(),
		Err:               cause.Error(),
	}
}

// TaskEvents keeps the event stream open like Fingerprint does its.
func (h *Host) TaskEvents(ctx context.Context, each func(*nomadplugin.TaskEvent)) error {
	return h.follow(ctx, func(ctx context.Context, i *Instance) error {
		return i.TaskEvents(ctx, func(e *nomadplugin.TaskEvent) error {
			each(e)
			return nil
		})
	}, func(error) {})
}

// follow runs a stream on one process after another until ctx is done or the host is closed.
func (h *Host) follow(ctx context.Context, run func(context.Context, *Instance) error, unavailable func(error)) error {
	wait := h.options.pace.launchMin
	for {
		i, err := h.Instance(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrClosed):
			return err
		case err != nil:
			unavailable(err)
			if err := pause(ctx, wait); err != nil {
				return err
			}
			wait = min(2*wait, h.options.pace.launchMax)
			continue
		}
		wait = h.options.pace.launchMin
		err = run(ctx, i)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			h.options.Logger.Debug("plugin stream ended", "plugin", h.info.Name, "error", err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
