// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// metrics asks the supervisors of a node when it is collected. Labels name screens, never
// what is on them or who views them, and a node has no more than its displays (X43).
type metrics struct{ runDir string }

func newMetrics(runDir string) *metrics { return &metrics{runDir} }

var perScreen = []string{"namespace", "profile"}

func screenMetric(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("botscreen_screen_"+name, help, perScreen, nil)
}

var (
	metricScreens = prometheus.NewDesc("botscreen_screens", "Screens of this node.", []string{"state", "isolation"}, nil)
	metricSilent  = prometheus.NewDesc("botscreen_screens_silent", "Screens whose supervisor did not answer.", nil, nil)

	metricHeld     = screenMetric("held_by_person", "Whether a person controls the screen.")
	metricViewers  = screenMetric("viewers", "Viewers attached now.")
	metricMemory   = screenMetric("memory_bytes", "Memory that cannot be reclaimed.")
	metricSwap     = screenMetric("swap_bytes", "Memory in swap.")
	metricCPU      = screenMetric("cpu_seconds_total", "Processor time.")
	metricStart    = screenMetric("start_seconds", "How long the desktop took to be ready.")
	metricWakes    = screenMetric("wake_seconds", "How long wakes and thaws took.")
	metricTaken    = screenMetric("takeovers_total", "Changes of hands to a person.")
	metricReturned = screenMetric("hand_backs_total", "Changes of hands to the agent.")
	metricRefusals = screenMetric("refusals_total", "Calls that were refused.")
	metricSent     = screenMetric("sent_bytes_total", "Bytes relayed to viewers.")
	metricReceived = screenMetric("received_bytes_total", "Bytes of viewers passed on to the X server.")
)

// Describe is part of prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		metricScreens, metricSilent, metricHeld, metricViewers, metricMemory, metricSwap, metricCPU, metricStart, metricWakes,
		metricTaken, metricReturned, metricRefusals, metricSent, metricReceived,
	} {
		out <- d
	}
}

// answer is what one supervisor says.
type metricsAnswer struct {
	status control.Status
	stats  control.Stats
	err    error
}

// Collect is part of prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), metricsTimeout)
	defer cancel()
	type kind struct {
		state     screen.State
		isolation screen.Isolation
	}
	screens, silent := map[kind]int{}, 0
	for _, a := range m.ask(ctx) {
		if a.err != nil {
			silent++
			continue
		}
		screens[kind{a.status.State, a.status.Isolation}]++
		a.collect(out)
	}
	for k, n := range screens {
		out <- prometheus.MustNewConstMetric(metricScreens, prometheus.GaugeValue, float64(n), string(k.state), string(k.isolation))
	}
	out <- prometheus.MustNewConstMetric(metricSilent, prometheus.GaugeValue, float64(silent))
}

func (m *metrics) ask(ctx context.Context) []metricsAnswer {
	ops, _ := filepath.Glob(filepath.Join(m.runDir, "*", "op")) // a bad pattern cannot be
	answers := make([]metricsAnswer, len(ops))
	var all sync.WaitGroup
	for i, op := range ops {
		all.Go(func() {
			client := control.NewClient(control.Unix(op))
			defer client.Close()
			a := &answers[i]
			if a.status, a.err = client.Status(ctx); a.err == nil {
				a.stats, a.err = client.Stats(ctx)
			}
		})
	}
	all.Wait()
	return answers
}

func (a metricsAnswer) collect(out chan<- prometheus.Metric) {
	labels := []string{a.stats.Namespace, string(a.status.Profile)}
	send := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64) {
		out <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
	held := 0.0
	if a.status.Lease.Holder != "agent" {
		held = 1
	}
	counts := a.stats.Counts
	send(metricHeld, prometheus.GaugeValue, held)
	send(metricViewers, prometheus.GaugeValue, float64(len(a.status.Viewers)))
	if a.stats.Processes > 0 { // else it could not be measured
		send(metricMemory, prometheus.GaugeValue, float64(a.stats.MemoryBytes))
		send(metricSwap, prometheus.GaugeValue, float64(a.stats.SwapBytes))
		send(metricCPU, prometheus.CounterValue, float64(a.stats.CPUUserNs+a.stats.CPUSystemNs)/1e9)
	}
	if counts.StartNs > 0 {
		send(metricStart, prometheus.GaugeValue, counts.StartNs.Seconds())
	}
	out <- prometheus.MustNewConstSummary(metricWakes, counts.Wakes, counts.WakeNs.Seconds(), nil, labels...)
	send(metricTaken, prometheus.CounterValue, float64(counts.Takeovers))
	send(metricReturned, prometheus.CounterValue, float64(counts.HandBacks))
	send(metricRefusals, prometheus.CounterValue, float64(counts.Refusals))
	send(metricSent, prometheus.CounterValue, float64(counts.SentBytes))
	send(metricReceived, prometheus.CounterValue, float64(counts.ReceivedBytes))
}
