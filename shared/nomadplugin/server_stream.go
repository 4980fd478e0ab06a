// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// minStreamLife bounds how often an agent can re-open a stream that fails: it does so at once.
const minStreamLife = time.Second

func (s *driverServer) Fingerprint(_ *driverpb.FingerprintRequest, stream grpc.ServerStreamingServer[Fingerprint]) error {
	return keepOpen(stream.Context(), func(ctx context.Context) error {
		return s.driver.Fingerprint(ctx, func(f *Fingerprint) error { return stream.Send(completeFingerprint(f)) })
	})
}

func (s *driverServer) TaskEvents(_ *driverpb.TaskEventsRequest, stream grpc.ServerStreamingServer[TaskEvent]) error {
	return keepOpen(stream.Context(), func(ctx context.Context) error {
		return s.driver.TaskEvents(ctx, func(e *TaskEvent) error {
			if e == nil {
				return nil
			}
			return stream.Send(completeEvent(e, time.Now()))
		})
	})
}

func (s *driverServer) TaskStats(req *driverpb.TaskStatsRequest, stream grpc.ServerStreamingServer[driverpb.TaskStatsResponse]) error {
	ctx, id := stream.Context(), TaskID(req.GetTaskId())
	interval := duration(req.GetCollectionInterval())
	if interval == 0 {
		interval = time.Second
	}
	err := s.driver.TaskStats(ctx, id, interval, func(sample *TaskStats) error {
		return stream.Send(&driverpb.TaskStatsResponse{Stats: completeStats(sample, id, time.Now())})
	})
	if errors.Is(err, ErrNotSupported) {
		// A stream that fails is opened again after every interval, with an error in the agent's log.
		<-ctx.Done()
		err = ctx.Err()
	}
	return wireError(ctx, err)
}

// keepOpen runs one of the streams that are meant to last as long as the agent. A driver that is done
// early leaves it open and silent; a failure is reported, but not before minStreamLife is over.
func keepOpen(ctx context.Context, run func(context.Context) error) error {
	timer := time.NewTimer(minStreamLife)
	defer timer.Stop()
	err := run(ctx)
	if err == nil {
		<-ctx.Done()
		return wireError(ctx, ctx.Err())
	}
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return wireError(ctx, err)
}
